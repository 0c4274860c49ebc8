#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/runtime/collectives/bucket_options.h"
#include "lockstep/training/reporting/records/rank_memory.h"

namespace lockstep {

/// A parameter of a model that is to be trained.
struct ParameterLayout {
  int64_t elements = 0;
  int64_t element_bytes = 4;
  /// Tensors of the parameter's size in the optimizer's state: 2 for Adam, 1 for SGD with momentum. Absent if
  /// they are not known.
  std::optional<int64_t> states = 0;
  bool is_trained = true;  ///< whether it has a gradient
  /// Whether its gradient is sparse. It is summed by rows then, in no bucket, and counts as nothing.
  bool has_sparse_gradient = false;
  /// Number of the sharded unit that it belongs to, from 0; absent outside of units.
  std::optional<int64_t> unit = {};
  /// Whether it is a rank's part of a parameter already, such as its experts, which stages 1 and 2 leave as
  /// it is.
  bool is_part = false;
};

/// How a model's training is divided among the ranks.
struct MemoryLayout {
  /// In the order of registration.
  std::vector<ParameterLayout> parameters;
  /// 0: each rank holds everything. 1 and 2: see ShardingOptions. 3: parameters in units are cut; those
  /// outside are whole.
  int stage = 0;
  int64_t num_parts = 1;  ///< ranks along the axis of the sharding
  /// The most units that are whole at a time: 1; 2 if a unit is gathered while another one computes, or is
  /// inside it; all units that keep their parameters until backward.
  int64_t units_at_once = 1;
  /// Ranks that share the memory of whole units: on CPUs those of one process, otherwise 1.
  int64_t units_shared_by = 1;
  BucketOptions buckets = {};  ///< used in stage 2
  /// Bytes of an element in which gradients of longer elements are summed; 0: their own.
  int64_t summed_element_bytes = 0;
};

/// Predicts the memory of each rank. With `P` elements of `b` bytes, `K` tensors of state, and `N` parts, it
/// is
///
///     stage 0:  b P + b P + K b P
///     stage 1:  b P + b P + K b P / N
///     stage 2:  b P + (b P + K b P) / N + buckets
///     stage 3:  (b P + b P + K b P) / N + gathered units
///
/// for parameters, gradients and state (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
/// Trillion Parameter Models", 2020, section 5, there for 2-byte parameters and gradients with K b = 12).
/// Shares are rounded up; padding is not counted.
///
/// The buckets of stage 2 are the two largest neighbours in the order in which they fill, since one fills
/// while the one before it is summed; if sums are slower than backward, there are more. Gathered units are
/// the largest ones, `units_at_once` of them, divided by the ranks that share them. Both have nothing to do
/// for one part.
///
/// Throws InvalidArgument for a stage outside of 0 to 3, for fewer than 1 parts, units at once or ranks that
/// share units, for negative sizes, and for units in another stage than 3.
///
/// Example:
///
///     const auto memory = predict_memory({.parameters = {{.elements = 100'000'000, .states = 2}},
///                                         .stage = 1, .num_parts = 4});
///     // 400 MB of parameters, 400 MB of gradients, 200 MB of Adam's state
MemoryParts predict_memory(const MemoryLayout& layout);

}  // namespace lockstep
