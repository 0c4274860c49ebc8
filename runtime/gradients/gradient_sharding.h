#pragma once

#include <memory>

#include "lockstep/runtime/collectives/collective_channel.h"

namespace lockstep {

/// Divides one optimizer's state and gradients among the ranks (ZeRO; Rajbhandari et al., 2020).
///
/// In stages 1 and 2, each rank owns an equal part of each bucket of parameters. Gradients are
/// reduce-scattered instead of summed for all, the optimizer steps the part and keeps state for it alone, and
/// the stepped parts are gathered. Stage 1 keeps the memory of whole gradients. In stage 2, a bucket has
/// memory only from its first gradient until its sum is there.
///
/// In stage 3, some of the optimizer's parameters are slices already (see ShardedParameter), whose gradients
/// are sums over the ranks that own different parts. They are summed over the copies only. An optimizer in
/// stage 1 or 2 may have such slices, too, such as those of experts, along the same axis or another one: they
/// stay as they are, and all other parameters are divided.
///
/// In any stage, some parameters may be cut along a dimension by layers that compute in parts. Their
/// gradients are summed, and divided, as those of other parameters are, among the ranks that have the same
/// rows. Ranks with different rows have different gradients, as have ranks with different stages of a
/// pipeline.
struct GradientSharding {
  int stage = 0;  ///< 0: nothing is divided.
  /// Channel of the ranks that own different parts, on which each local replica has its rank among them.
  /// Null: these are all ranks, and the optimizer's own channel is used.
  std::unique_ptr<CollectiveChannel> parts = nullptr;
  /// Channel of the ranks that own the same part of the same rows, for hybrid sharding. Null: there are no
  /// others.
  std::unique_ptr<CollectiveChannel> copies = nullptr;
  /// In stages 1 and 2, channel of the ranks that have other slices of parameters that are slices already.
  /// Null: there are none.
  std::unique_ptr<CollectiveChannel> shards = nullptr;
  /// Channel of the ranks that have the same ones. Null: there are no others.
  std::unique_ptr<CollectiveChannel> copies_of_shards = nullptr;
  /// Channel of the ranks that have different parts of parameters cut along a dimension. Null: none are cut.
  std::unique_ptr<CollectiveChannel> cuts = nullptr;
  /// Channel of the ranks that have different stages of a pipeline. Null: there are no stages.
  std::unique_ptr<CollectiveChannel> stages = nullptr;
};

}  // namespace lockstep
