#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/runtime/collectives/bucket_options.h"

namespace lockstep {

class GradientCompression;

/// Selects how worker processes exchange values.
enum class CommunicationImplementation {
  kAuto,  ///< NCCL if every replica has a GPU of its own, else exchanges.
  kRing,  ///< Gloo's ring between the processes.
  /// Lockstep's own exchanges: shared memory between processes of one machine, TCP between machines. The
  /// order of a sum depends on the ranks alone.
  kExchange,
  kNccl,
};

/// Options of the communication between replicas, as in tf.distribute.
struct CommunicationOptions {
  /// Gradients are packed into collectives: a new one begins once the last one exceeds this many bytes, as in
  /// tf.distribute. 0: the sizes in BucketOptions.
  int64_t bytes_per_pack = 0;
  /// Limit of every wait for other replicas. None: the timeout of the strategy's options.
  std::optional<std::chrono::milliseconds> timeout;
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  /// Compresses gradients between workers: the result of make_gradient_compression(), or your own. Each
  /// process needs its own object. Null: no compression. NCCL takes only one with a wire_dtype(), and rounds
  /// gradients between the GPUs of one process, too. Sums in memory that replicas share are not compressed.
  std::shared_ptr<GradientCompression> gradient_compression;
  /// How exchanges between workers sum: `recursive_doubling`, `halving`, `direct` or `ring`. `auto` takes
  /// the one with the least estimated time for each size; describe() of the strategy tells which. All give
  /// the same bits but `ring`, whose order of sums depends on the sizes of the buckets. Another value than
  /// `auto` implies the implementation kExchange.
  std::string exchange_algorithm = "auto";
  /// Whether exchanges between machines are encrypted. Between workers of one machine, which use its memory,
  /// they are not. Set false only on a network that is protected otherwise. Gloo and NCCL do not encrypt.
  bool encrypt = true;

  bool operator==(const CommunicationOptions&) const = default;

  /// Returns these options with those of `overrides` that differ from their defaults.
  CommunicationOptions merge(const CommunicationOptions& overrides) const;
  /// Returns `buckets` with the pack size of these options, if they have one. The first bucket may be smaller
  /// still, so that the first sums start early.
  BucketOptions packed(BucketOptions buckets) const;
  /// Throws InvalidArgument for negative bytes, for a timeout that is not positive, for an unknown exchange
  /// algorithm, and for one together with another implementation than kAuto and kExchange.
  void check() const;
};

/// Parses `auto`, `ring`, `exchange` or `nccl`. Throws InvalidArgument listing these for any other name.
CommunicationImplementation parse_communication(const std::string& name);
std::string communication_name(CommunicationImplementation implementation);

}  // namespace lockstep
