#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {

/// The settings that a search tries.
struct LayoutChoices {
  std::vector<int> stages{0, 1, 2, 3};  ///< of sharding
  std::vector<std::string> schedules{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
  std::vector<int64_t> stages_per_rank{2, 4};  ///< of the schedule "interleaved"
  bool with_recomputation = true;              ///< besides layouts without
  int64_t most_tensor = INT64_MAX;             ///< ranks along each of these axes
  int64_t most_context = INT64_MAX;
  int64_t most_pipeline = INT64_MAX;
  int64_t most_micro_batches = INT64_MAX;  ///< of a replica in a step
};

/// A layout with what is predicted for it.
struct PlannedChoice {
  PlannedLayout layout;
  LayoutMemory memory;  ///< of the rank that needs most
  LayoutTime time;
};

/// A layout that needs more memory than a device has.
struct UnfitLayout {
  PlannedLayout layout;
  LayoutMemory memory;
  double least_seconds = 0;               ///< that a step would take at least
  std::optional<PlannedLayout> change{};  ///< that fits with the fewest changes, and of those the fastest
};

struct LayoutSearch {
  std::vector<PlannedChoice> ranked;  ///< that fit, the fastest first, but for ties of 1 %
  /// Those that would be the fastest, if they did fit: one of each way to cut the model.
  std::vector<UnfitLayout> unfit;
  std::optional<UnfitLayout> smallest{};  ///< the one that needs least, if none fits
  size_t num_candidates = 0;
  size_t num_fit = 0;
};

struct SearchOptions {
  LayoutChoices choices{};
  size_t most_ranked = 10;
  size_t most_unfit = 5;
  std::string mesh{};  ///< only layouts of it, as PlannedLayout::mesh() returns it; empty: all
};

/// Calls `visit` with each layout of the planner's devices among the choices that planner.refusal() accepts.
/// A replica's micro-batches have 1, 2, 4, ... examples, or all of them. Layers are cut with shards of the
/// sequence if the ranks divide it. Replicas are along "data" and "shard", or "data" and "expert". Models
/// with tables also have parameter servers: some of the devices, or one to four on each of some machines.
void for_each_layout(const LayoutPlanner& planner, const LayoutChoices& choices,
                     const std::function<void(const PlannedLayout&)>& visit);

/// Predicts all layouts, drops those that do not fit, and ranks the others by the time of a step; equally
/// fast ones by their memory. The first is the simplest of those that are at most 1 % slower than the
/// fastest: the one with the fewest differences from replicas that each have everything. Only layouts that
/// may be among the first are simulated.
///
/// Throws InvalidArgument for `most_ranked` of 0, and as make_pipeline_schedule() for unknown schedules.
///
/// Example:
///
///     for (const auto& choice : search_layouts(planner).ranked)
///       std::cout << choice.layout.mesh() << ": " << choice.time.seconds() << " s\n";
LayoutSearch search_layouts(const LayoutPlanner& planner, const SearchOptions& options = {});

/// Returns the layout that fits with the fewest changes of this one, and of those the fastest; nullopt if
/// none fits.
std::optional<PlannedLayout> nearest_that_fits(const LayoutPlanner& planner, const PlannedLayout& layout,
                                               const LayoutChoices& choices = {});

/// Returns the number of settings in which two layouts differ: axes, stage, micro-batches, recomputation,
/// schedule and servers.
int num_changes(const PlannedLayout& a, const PlannedLayout& b);

}  // namespace lockstep
