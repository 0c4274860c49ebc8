#include "lockstep/training/layouts/layout_planner.h"

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/layouts/internal/layout_memory.h"
#include "lockstep/training/layouts/internal/layout_time.h"
#include "lockstep/training/layouts/internal/stage_ranges.h"
#include "lockstep/training/layouts/internal/table_memory.h"
#include "lockstep/training/layouts/internal/table_time.h"

namespace lockstep {
namespace {

void expect(bool is_met, const std::string& expected, double given) {
  if (!is_met)
    throw InvalidArgument("[LayoutPlanner] expected " + expected + ", but got " + std::to_string(given));
}

void check_sizes(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training) {
  expect(!model.parts.empty(), "a model of 1 or more parts", 0);
  for (const size_t kind : model.parts)
    expect(kind < model.kinds.size(), "parts of known kinds", static_cast<double>(kind));
  expect(cluster.devices >= 1, "1 or more devices", static_cast<double>(cluster.devices));
  expect(cluster.devices_per_machine >= 1, "1 or more devices of a machine",
         static_cast<double>(cluster.devices_per_machine));
  expect(cluster.flops_per_second > 0, "operations per second above 0", cluster.flops_per_second);
  expect(cluster.bytes_per_second > 0, "bytes per second above 0", cluster.bytes_per_second);
  expect(cluster.operator_seconds >= 0, "0 or more seconds of an operator", cluster.operator_seconds);
  expect(cluster.within.bytes_per_second > 0, "a link within machines above 0",
         cluster.within.bytes_per_second);
  expect(cluster.between.bytes_per_second > 0, "a link between machines above 0",
         cluster.between.bytes_per_second);
  expect(cluster.taken_share >= 0 && cluster.taken_share <= 1, "a share of 0 to 1", cluster.taken_share);
  expect(training.global_batch >= 1, "1 or more examples in a step",
         static_cast<double>(training.global_batch));
  expect(training.parameter_bytes >= 1, "1 or more bytes of an element",
         static_cast<double>(training.parameter_bytes));
  expect(training.optimizer_states >= 0, "0 or more states of an element",
         static_cast<double>(training.optimizer_states));
  expect(training.bucket_bytes >= 1, "buckets of 1 or more bytes",
         static_cast<double>(training.bucket_bytes));
}

std::string number(int64_t value) {
  return std::to_string(value);
}

/// Returns why an axis cannot have so many ranks.
std::optional<std::string> refused_axis(const PlannedModel& model, const PlannedLayout& layout) {
  if (layout.tensor > 1) {
    if (model.cut_sizes.empty()) return "this model's layers cannot be cut along tensor";
    for (const int64_t size : model.cut_sizes)
      if (size % layout.tensor != 0)
        return "tensor=" + number(layout.tensor) + " does not divide " + number(size);
  }
  if (layout.context > 1) {
    if (model.sequence_length == 0) return "this model has no sequences to cut along context";
    if (layout.context > model.sequence_length)
      return "there are fewer tokens than context=" + number(layout.context);
  }
  if (layout.expert > 1) {
    if (model.experts % layout.expert != 0 || model.experts == 0)
      return "expert=" + number(layout.expert) + " does not divide the " + number(model.experts) + " experts";
    if (layout.stage == 3 && layout.shard > 1) return "with the axis expert, stage 3 divides memory along it";
  }
  return std::nullopt;
}

std::optional<std::string> refused_pipeline(const PlannedModel& model, const PlannedLayout& layout) {
  const bool is_interleaved = layout.schedule == "interleaved";
  const int64_t most = is_interleaved ? INT64_MAX : layout.schedule == "zb-v" ? 2 : 1;
  const int64_t least = is_interleaved || layout.schedule == "zb-v" ? 2 : 1;
  if (layout.pipeline == 1)
    return layout.stages_per_rank == 1
               ? std::nullopt
               : std::optional<std::string>("several stages on a rank need a pipeline");
  if (layout.stages_per_rank < least || layout.stages_per_rank > most)
    return layout.schedule + " does not have " + number(layout.stages_per_rank) + " stages on a rank";
  if (layout.stages() > static_cast<int64_t>(model.parts.size()))
    return number(layout.stages()) + " stages are more than the " +
           number(static_cast<int64_t>(model.parts.size())) + " parts of the model";
  if (is_interleaved && layout.micro_batches % layout.pipeline != 0)
    return "interleaved needs micro-batches that pipeline=" + number(layout.pipeline) + " divides";
  return std::nullopt;
}

LayoutMemory largest(const std::vector<LayoutMemory>& ranks) {
  return *std::max_element(ranks.begin(), ranks.end(),
                           [](const auto& a, const auto& b) { return a.peak() < b.peak(); });
}

std::optional<std::string> refused_servers(const PlannedModel& model, const PlannedLayout& layout) {
  if (layout.stage > 0 && !model.tables.empty()) return "gradients of tables are sparse, and not sharded";
  if (layout.servers == 0) return std::nullopt;
  if (model.tables.empty()) return "this model has no tables for parameter servers";
  if (layout.micro_batches > 1) return "parameter servers make one step of each batch";
  if (layout.ranks() != layout.data) return "parameter servers have replicas along data only";
  return std::nullopt;
}

}  // namespace

struct LayoutPlanner::State {
  PlannedModel model;
  PlannedCluster cluster;
  PlannedTraining training;
  LayoutMemoryFunction memory;
  StagePlans plans{};
};

LayoutPlanner::LayoutPlanner(PlannedModel model, PlannedCluster cluster, PlannedTraining training,
                             LayoutMemoryFunction memory)
    : state_(std::make_unique<State>(State{std::move(model), cluster, training, std::move(memory)})) {
  check_sizes(state_->model, cluster, training);
}

LayoutPlanner::~LayoutPlanner() = default;
LayoutPlanner::LayoutPlanner(LayoutPlanner&&) noexcept = default;
LayoutPlanner& LayoutPlanner::operator=(LayoutPlanner&&) noexcept = default;

const PlannedModel& LayoutPlanner::model() const {
  return state_->model;
}
const PlannedCluster& LayoutPlanner::cluster() const {
  return state_->cluster;
}
const PlannedTraining& LayoutPlanner::training() const {
  return state_->training;
}

std::optional<std::string> LayoutPlanner::refusal(const PlannedLayout& layout) const {
  for (const int64_t size : {layout.data, layout.shard, layout.expert, layout.pipeline, layout.context,
                             layout.tensor, layout.micro_batches, layout.stages_per_rank})
    if (size < 1) return "axes, micro-batches and stages must be 1 or more";
  if (layout.servers < 0) return "parameter servers must be 0 or more";
  const int64_t devices = state_->cluster.devices_for_ranks(layout);
  if (layout.ranks() != devices)
    return layout.mesh() + " has " + number(layout.ranks()) + " ranks for " + number(devices) + " devices";
  if (auto refused = refused_servers(state_->model, layout)) return refused;
  if (layout.stage < 0 || layout.stage > 3) return "stages of sharding are 0 to 3";
  if (layout.stage > 0 && layout.shard == 1 && layout.expert == 1 && layout.replicas() > 1)
    return "sharding needs an axis shard";
  if (layout.replicas() > state_->training.global_batch)
    return number(layout.replicas()) + " replicas are more than the " +
           number(state_->training.global_batch) + " examples of a step";
  const int64_t of_replica = (state_->training.global_batch + layout.replicas() - 1) / layout.replicas();
  if (layout.micro_batches > of_replica)
    return number(layout.micro_batches) + " micro-batches are more than a replica's " + number(of_replica) +
           " examples";
  if (auto refused = refused_axis(state_->model, layout)) return refused;
  const int64_t cuts = layout.tensor * layout.context;
  if (layout.has_sequence_shards && (layout.tensor == 1 || state_->model.sequence_length % cuts != 0))
    return "shards of the sequence need a tensor axis whose ranks divide it";
  return refused_pipeline(state_->model, layout);
}

void LayoutPlanner::check(const PlannedLayout& layout) const {
  if (const auto refused = refusal(layout)) throw InvalidArgument("[LayoutPlanner] " + *refused);
}

std::vector<LayoutMemory> LayoutPlanner::memory_of_ranks(const PlannedLayout& layout) const {
  check(layout);
  if (state_->memory) return state_->memory(layout);
  auto ranks = predict_layout_memory(state_->model, state_->cluster, state_->training, layout, state_->plans);
  if (state_->model.tables.empty()) return ranks;
  return predict_table_memory(state_->model, state_->training, layout, ranks.front());
}

LayoutMemory LayoutPlanner::memory(const PlannedLayout& layout) const {
  const auto ranks = memory_of_ranks(layout);
  // Servers have memory of their own.
  if (layout.servers > 0 && state_->cluster.server_memory_bytes > 0) return ranks.front();
  return largest(ranks);
}

bool LayoutPlanner::has_memory_function() const {
  return static_cast<bool>(state_->memory);
}

LayoutMemory LayoutPlanner::estimated_memory(const PlannedLayout& layout) const {
  if (!has_memory_function()) return memory(layout);
  check(layout);
  return largest(
      predict_layout_memory(state_->model, state_->cluster, state_->training, layout, state_->plans));
}

LayoutTime LayoutPlanner::time(const PlannedLayout& layout) const {
  check(layout);
  LayoutTime time = predict_layout_time(state_->model, state_->cluster, state_->training, layout,
                                        state_->plans, /*is_bound=*/false);
  if (!state_->model.tables.empty())
    add_table_time(state_->model, state_->cluster, state_->training, layout, time);
  return time;
}

double LayoutPlanner::least_seconds(const PlannedLayout& layout) const {
  if (!state_->model.tables.empty()) return time(layout).seconds();  // It has no pipeline.
  check(layout);
  return predict_layout_time(state_->model, state_->cluster, state_->training, layout, state_->plans,
                             /*is_bound=*/true)
      .seconds();
}

}  // namespace lockstep
