#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/runtime/collectives/bucket_options.h"

namespace lockstep::benchmarks {

/// Gradients that are summed in one exchange.
struct ModelBucket {
  double bytes = 0;
  double ready_seconds = 0;  ///< since backward began: when the last of them has been computed
};

/// The gradient of one parameter tensor.
struct ModelGradient {
  double bytes = 0;
  double ready_seconds = 0;  ///< since backward began: when it has been computed
};

/// A training step of one replica without any communication.
struct ComputeTimes {
  double forward_seconds = 0;
  double backward_seconds = 0;  ///< with copying the gradients into their buckets
  double optimizer_seconds = 0;
  double waiting_seconds = 0;  ///< until the slowest of the replicas has come as far; no part of seconds()
  std::vector<ModelGradient> gradients{};  ///< in the order in which they become ready
  std::vector<ModelBucket> buckets{};      ///< in the order in which they leave

  double seconds() const { return forward_seconds + backward_seconds + optimizer_seconds; }
  /// Returns these times with the buckets that the library makes of the gradients.
  ComputeTimes in_buckets(const BucketOptions& options) const;
};

/// Buckets of `bytes` where nothing is known of the layers: gradients come evenly through backward, the first
/// bucket closes at `first_bytes` and each other one at `bucket_bytes`, as BucketOptions has it.
std::vector<ModelBucket> even_buckets(double bytes, double first_bytes, double bucket_bytes,
                                      double backward_seconds);

/// The times of one exchange.
struct ExchangeTimes {
  double seconds = 0;
  /// How much of the replica's compute it stops meanwhile, 0 to 1: the processor's time that it takes itself.
  double taken_share = 0;
};

enum class Overlap : uint8_t {
  kNone,      ///< buckets leave once backward has ended
  kBackward,  ///< buckets leave as they become ready
};

/// Seconds of one step. Exchange i carries bucket i; those that come behind the buckets belong to no bucket
/// and leave when backward has ended. They go one after another, as a channel carries them: each begins when
/// it is ready and the one before it has ended (as the pipeline of Shi, Wang, Chu and Li, A DAG model of
/// synchronous stochastic gradient descent in distributed deep learning, ICPADS 2018, arXiv:1805.03812), and
/// the optimizer when all have ended. Whatever an exchange takes of the processor delays backward, and with
/// it the buckets to come. Throws std::invalid_argument for fewer exchanges than buckets.
double step_seconds(const ComputeTimes& compute, const std::vector<ExchangeTimes>& exchanges,
                    Overlap overlap);

}  // namespace lockstep::benchmarks
