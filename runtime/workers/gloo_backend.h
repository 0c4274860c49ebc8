#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace lockstep {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  /// Address on which this process listens for the others: a name or number, without a port.
  std::string address;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< for connecting and for each collective
};

/// Makes c10d's ProcessGroupGloo with one connection to each other rank. Blocks until all are connected. The
/// ranks meet at `store`, of which each rank passes its own client. Unlike ProcessGroupGloo's, its abort()
/// ends waiting collectives: at once on this rank, and on ranks that wait for it. Throws what Gloo and the
/// store throw.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GlooOptions& options);

}  // namespace lockstep
