#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class GradientCompression;

/// What carries values between worker processes.
enum class CommunicationImplementation {
  kAuto,  ///< NCCL where every replica has a GPU of its own, else the ring
  kRing,  ///< Gloo between the processes, shared memory within each
  kNccl,
};

/// How replicas communicate, as tf.distribute has it.
struct CommunicationOptions {
  /// Gradients are packed up to this many bytes for one collective; 0: as BucketOptions has it.
  int64_t bytes_per_pack = 0;
  /// Of every wait for other replicas; none: as the strategy's options have it.
  std::optional<std::chrono::milliseconds> timeout;
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  /// Of gradients between workers, as make_gradient_compression() makes it, or a user's own, which each
  /// process has for itself; null: none. Within one process nothing is compressed.
  std::shared_ptr<GradientCompression> gradient_compression;

  bool operator==(const CommunicationOptions&) const = default;

  /// These options, but for those that `overrides` has other than their defaults.
  CommunicationOptions merge(const CommunicationOptions& overrides) const;
  /// Throws InvalidArgument for negative bytes and for a timeout that is not positive.
  void check() const;
};

/// `auto`, `ring` or `nccl`. Throws InvalidArgument listing them.
CommunicationImplementation parse_communication(const std::string& name);
std::string communication_name(CommunicationImplementation implementation);

}  // namespace lockstep
