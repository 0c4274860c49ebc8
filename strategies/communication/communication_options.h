#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class GradientCompression;

/// Selects how worker processes exchange values.
enum class CommunicationImplementation {
  kAuto,  ///< NCCL if every replica has a GPU of its own, else the ring.
  kRing,  ///< Gloo between the processes, shared memory within each.
  kNccl,
};

/// Options of the communication between replicas, as in tf.distribute.
struct CommunicationOptions {
  /// Gradients are packed into collectives of up to this many bytes. 0: the size in BucketOptions.
  int64_t bytes_per_pack = 0;
  /// Limit of every wait for other replicas. None: the timeout of the strategy's options.
  std::optional<std::chrono::milliseconds> timeout;
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  /// Compresses gradients between workers: the result of make_gradient_compression(), or your own. Each
  /// process needs its own object. Null: no compression. NCCL takes only one with a wire_dtype(), and rounds
  /// gradients between the GPUs of one process, too. Sums in memory that replicas share are not compressed.
  std::shared_ptr<GradientCompression> gradient_compression;

  bool operator==(const CommunicationOptions&) const = default;

  /// Returns these options with those of `overrides` that differ from their defaults.
  CommunicationOptions merge(const CommunicationOptions& overrides) const;
  /// Throws InvalidArgument for negative bytes and for a timeout that is not positive.
  void check() const;
};

/// Parses `auto`, `ring` or `nccl`. Throws InvalidArgument listing these for any other name.
CommunicationImplementation parse_communication(const std::string& name);
std::string communication_name(CommunicationImplementation implementation);

}  // namespace lockstep
