#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace lockstep {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string address;  ///< of this process, that it listens on for the others: a name or number, no port
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of connecting and of each collective
};

/// c10d's ProcessGroupGloo with one connection to each other rank. Blocks until all are connected. `store` is
/// the ranks' meeting place, and this rank's own client of it. Unlike ProcessGroupGloo's, its abort() ends
/// collectives that wait, on this rank at once and on those that wait for it. Throws what Gloo and the store
/// throw.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GlooOptions& options);

}  // namespace lockstep
