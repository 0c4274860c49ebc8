#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/benchmarks/local_cluster.h"
#include "lockstep/benchmarks/scaling/exchange_model.h"

namespace lockstep::benchmarks {

/// A worker that sums gradients with the others and does nothing else: through the channel that an optimizer
/// of MultiWorkerMirroredStrategy has, with nothing left out.
class ExchangeLoop {
 public:
  struct Options {
    std::string compression = "none";  ///< as make_gradient_compression() names it
    std::string algorithm = "auto";    ///< as CommunicationOptions::exchange_algorithm names it
    bool uses_tcp = false;             ///< between processes of one machine, too
  };
  /// Blocks until all workers have joined. Throws what make_gradient_compression() and WorkerGroup::join()
  /// throw.
  ExchangeLoop(const ClusterResolver& resolver, const ClusterOptions& cluster, const Options& options);
  ~ExchangeLoop();
  ExchangeLoop(const ExchangeLoop&) = delete;
  ExchangeLoop& operator=(const ExchangeLoop&) = delete;

  /// Sums float32 gradients of so many bytes, one exchange after another, and returns the mean of one. Blocks
  /// until all workers do the same.
  ExchangeSample run(int64_t bytes, int repetitions);
  /// Seconds to compress gradients of so many bytes and to decompress their sum, the mean over repetitions;
  /// 0 without compression. Has nothing to do with the other workers.
  double conversion_seconds(int64_t bytes, int repetitions);

 private:
  class Channel;
  std::unique_ptr<Channel> channel_;
};

}  // namespace lockstep::benchmarks
