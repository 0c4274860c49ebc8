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
  /// Blocks until all workers have joined. `compression` as make_gradient_compression() names it. Throws what
  /// it and WorkerGroup::join() throw.
  ExchangeLoop(const ClusterResolver& resolver, const ClusterOptions& options,
               const std::string& compression);
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
