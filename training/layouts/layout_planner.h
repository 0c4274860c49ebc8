#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/layouts/planned_layout.h"
#include "lockstep/training/layouts/planned_model.h"

namespace lockstep {

/// The memory of a rank when it needs most in a step, in bytes by what it holds.
struct LayoutMemory {
  double parameters = 0;
  double gradients = 0;
  double optimizer_state = 0;
  double activations = 0;
  double buckets = 0;
  double gathered_units = 0;
  double communication = 0;
  double inputs = 0;
  double tables = 0;       ///< of embeddings: whole ones, or a server's rows
  double table_state = 0;  ///< that the optimizer keeps for them
  double rows = 0;         ///< that were looked up, and their gradients

  double peak() const {
    return parameters + gradients + optimizer_state + activations + buckets + gathered_units + communication +
           inputs + tables + table_state + rows;
  }
};

/// The time of a step by what the slowest rank does, in seconds. Communication counts as far as the rank
/// waits for it.
struct LayoutTime {
  double operators = 0;
  double recomputation = 0;
  double cut_layers = 0;  ///< sums along the axis "tensor"
  double sequences = 0;   ///< keys and values along the axis "context"
  double experts = 0;     ///< tokens on their way to their experts
  double units = 0;       ///< in stage 3, parameters that are gathered and gradients that are summed
  double sums = 0;        ///< of gradients, after backward
  double optimizer = 0;
  double gathers = 0;  ///< in stages 1 and 2, of the parameters after the optimizer's step
  double bubble = 0;   ///< waiting for other ranks of the pipeline
  double input = 0;    ///< waiting for examples
  double rows = 0;     ///< of tables, on their way between replicas, or to servers and back

  double seconds() const {
    return operators + recomputation + cut_layers + sequences + experts + units + sums + optimizer + gathers +
           bubble + input + rows;
  }
};

/// Returns the memory of each rank along the axis "pipeline" in a layout.
using LayoutMemoryFunction = std::function<std::vector<LayoutMemory>(const PlannedLayout& layout)>;

/// Predicts memory and time of a training in any layout: arithmetic on the parts of the model and the rates
/// of the devices and links, which takes microseconds.
///
/// Memory follows the formulas of predict_memory() for what is kept, and the pipeline's schedule for the
/// activations of its micro-batches. Time is that of the model's operations at the devices' rates, of
/// messages over the links (hierarchical rings, see all_reduce_model.h), and of simulate_pipeline() for the
/// bubble. Gradients are summed in buckets behind the last backward, and units of stage 3 are gathered behind
/// the part before them, as far as these take long enough.
///
/// Not thread-safe: it remembers schedules.
///
/// Example:
///
///     LayoutPlanner planner(planned_model(record), {.devices = 4, .flops_per_second = 1e13}, {.global_batch
///     = 64}); const PlannedLayout layout{.shard = 4, .stage = 2, .micro_batches = 2}; std::cout <<
///     planner.memory(layout).peak() << " bytes, " << planner.time(layout).seconds() << " s\n";
class LayoutPlanner {
 public:
  /// Throws InvalidArgument for a model without parts, numbers below 1, and rates that are not above 0.
  /// If `memory` is given, as recorded_memory() returns it, its numbers replace those of the formulas.
  LayoutPlanner(PlannedModel model, PlannedCluster cluster, PlannedTraining training,
                LayoutMemoryFunction memory = {});
  ~LayoutPlanner();
  LayoutPlanner(LayoutPlanner&&) noexcept;
  LayoutPlanner& operator=(LayoutPlanner&&) noexcept;

  const PlannedModel& model() const;
  const PlannedCluster& cluster() const;
  const PlannedTraining& training() const;

  /// Returns why the model cannot be trained in a layout, whatever its memory; nullopt if it can.
  std::optional<std::string> refusal(const PlannedLayout& layout) const;

  // The following throw InvalidArgument with refusal().

  /// Returns the memory of the rank that needs most.
  LayoutMemory memory(const PlannedLayout& layout) const;
  /// Returns the same by the formulas, which take microseconds, if the planner has a slower function that is
  /// more exact.
  LayoutMemory estimated_memory(const PlannedLayout& layout) const;
  bool has_memory_function() const;
  /// Returns that of each rank along the axis "pipeline", in order. Ranks that differ on other axes need the
  /// same. With parameter servers: that of each replica, and that of each server.
  std::vector<LayoutMemory> memory_of_ranks(const PlannedLayout& layout) const;
  LayoutTime time(const PlannedLayout& layout) const;
  /// Returns a lower bound of time(layout).seconds() without simulating the pipeline, which takes longest.
  double least_seconds(const PlannedLayout& layout) const;

 private:
  struct State;
  void check(const PlannedLayout& layout) const;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
