#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace lockstep {

/// The division of a global batch among replicas: in equal pieces, or in proportion to given numbers or
/// measured speeds. Sums of gradients do not depend on it but for rounding, if the loss is scaled by the
/// global batch size; normalisation of a shard's own batch and random operators do.
///
/// Example:
///
///     MirroredStrategy one_to_three({"cpu:0", "gpu:0"}, {.replica_weights = {1, 3}});
///     MirroredStrategy by_speed({"cpu:0", "gpu:0"}, {.replica_weights = ReplicaWeights::measured()});
class ReplicaWeights {
 public:
  /// Divides into equal pieces of ceil(n / replicas), of which the last may be smaller or empty.
  ReplicaWeights() = default;
  /// Divides in proportion to one number for each replica.
  ReplicaWeights(std::initializer_list<double> values) : values_(values) {}
  explicit ReplicaWeights(std::vector<double> values) : values_(std::move(values)) {}

  /// Divides equally at first. The strategy then measures how long each replica computes its gradients, not
  /// counting the host's waits, and gives each a part for which all need the same time. It repeats that in at
  /// most 60 steps, which wait for their devices and become no graphs, and keeps the last division. Waits of
  /// an accelerator within forward and backward, such as those of SyncBatchNorm, count as computing.
  static ReplicaWeights measured() {
    ReplicaWeights weights;
    weights.are_measured_ = true;
    return weights;
  }

  bool are_measured() const { return are_measured_; }
  /// Returns the given numbers; empty for equal pieces, and if they are measured.
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  bool are_measured_ = false;
};

/// Cuts `n` examples into equal pieces of ceil(n / count), of which the last may be smaller or empty. Returns
/// the `count` + 1 bounds: piece i is [bounds[i], bounds[i + 1]).
std::vector<int64_t> cut_equally(int64_t n, int count);

/// Cuts `n` examples in proportion to positive `weights`: each bound is the nearest whole number, so a piece
/// differs from its share by less than one example. Returns the bounds as cut_equally() does.
std::vector<int64_t> cut_by_weights(int64_t n, const std::vector<double>& weights);

}  // namespace lockstep
