// The channels along the axes of a strategy's mesh.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "lockstep/runtime/backends/internal/grouped_channel.h"
#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

/// Returns the channel of an axis of size 1, on which each replica is alone.
std::unique_ptr<CollectiveChannel> alone(int num_local, int first_replica, const std::string& where,
                                         std::chrono::milliseconds timeout) {
  std::vector<GroupedChannel::Group> channels;
  for (int local = 0; local < num_local; ++local) {
    auto channel = std::make_unique<LocalChannel>(1, LocalAlgorithm::kOneDevice, timeout);
    channel->name_ranks({{first_replica + local}, where});
    channels.push_back({std::move(channel), {local}});
  }
  return std::make_unique<GroupedChannel>(std::move(channels));
}

/// Returns the axis that `axis_of` returns for parameters; empty if it does for all. Throws InvalidArgument
/// for several. `parts` says what parameters have along it.
std::string common_axis(const std::string& strategy, const std::vector<at::Tensor>& parameters,
                        const std::function<std::string(const at::Tensor&)>& axis_of, const char* parts) {
  std::string axis;
  for (const auto& parameter : parameters) {
    const std::string own = axis_of(parameter);
    if (own.empty()) continue;
    if (!axis.empty() && own != axis) {
      throw InvalidArgument(c10::str("[", strategy, "] expected an optimizer of parameters that ", parts,
                                     " along one axis, but got some along ", own, " and some along ", axis));
    }
    axis = own;
  }
  return axis;
}

/// Returns the axis over which a mesh shards if none is named; empty if gradients are summed over none.
std::string usual_axis_of_sharding(const Mesh& mesh) {
  std::string last;
  for (const auto role : {AxisRole::kContext, AxisRole::kData}) {
    for (const auto& axis : mesh.axes()) {
      if (axis.role != role) continue;
      if (axis.name == "shard") return axis.name;
      last = axis.name;
    }
  }
  return last;
}

}  // namespace

void Strategy::Core::open_axes() {
  const auto open = [this](const ReplicaGroups& groups) {
    if (groups.groups.front().size() == 1) {
      return alone(static_cast<int>(states.size()), states.front().rank, groups.where, config.timeout);
    }
    auto channel = config.cross_device_ops->make_grouped_channel(config.devices, groups, config.timeout);
    channel->keep_together(kSettlingRuns);
    return channel;
  };
  const auto replicas = mesh.replica_groups();
  if (mesh.cuts_models()) collectives = open({" over the replicas", replicas});
  for (const auto& axis : mesh.axes()) {
    const ReplicaGroups groups{" over the axis " + axis.name, mesh.groups(axis.name)};
    axes.push_back(groups.groups == replicas ? nullptr : open(groups));
  }
}

std::unique_ptr<CollectiveChannel> Strategy::Core::open_gradients() const {
  const auto groups = mesh.gradient_groups();
  if (groups.front().size() == 1) return nullptr;
  if (mesh.cuts_models()) {
    const bool has_context = groups != mesh.replica_groups();
    return config.cross_device_ops->make_grouped_channel(
        config.devices,
        {has_context ? " over the replicas and their parts of sequences" : " over the replicas", groups},
        config.timeout);
  }
  return config.cross_device_ops->make_gradient_channel(config.devices, config.timeout,
                                                        config.gradient_compression);
}

GradientSharding Strategy::Core::open_sharding(const torch::optim::Optimizer& optimizer) const {
  int stage = sharding.stage;
  std::string axis = sharding.axis;
  const auto parameters = parameters_of(optimizer);
  const std::string cut_axis = common_axis(config.name, parameters, axis_of_rows, "are cut");
  const std::string stage_axis =
      common_axis(config.name, parameters, axis_of_stages, "belong to stages of a pipeline");
  const std::string axis_of_shards = common_axis(
      config.name, parameters,
      [](const at::Tensor& parameter) {
        return is_slice(parameter) ? sharded_parameter_of(parameter)->axis : std::string();
      },
      "are shards");
  if (stage == 3 && !axis_of_shards.empty() && axis_of_shards != axis) {
    throw InvalidArgument(c10::str("[", config.name, "] sharding: expected shards along the axis ", axis,
                                   " of stage 3, but got an optimizer of some along ", axis_of_shards));
  }
  const bool has_shards = !axis_of_shards.empty();
  if (has_shards && (stage == 0 || std::all_of(parameters.begin(), parameters.end(), is_slice))) {
    stage = 3;
    axis = axis_of_shards;
  } else if (stage == 3 && !has_shards) {
    stage = 0;  // Its parameters are outside of units.
  }
  GradientSharding opened{.stage = stage};
  const auto open = [&](const std::string& where, std::vector<std::vector<int>> groups) {
    return config.cross_device_ops->make_grouped_channel(config.devices, {where, std::move(groups)},
                                                         config.timeout);
  };
  if (!cut_axis.empty()) opened.cuts = open(" over the axis " + cut_axis, mesh.groups(cut_axis));
  if (!stage_axis.empty()) opened.stages = open(" over the axis " + stage_axis, mesh.groups(stage_axis));
  if (stage == 0) return opened;
  if (config.gradient_compression) {
    throw InvalidArgument(c10::str("[", config.name, "] sharding: expected no gradient compression, but got ",
                                   config.gradient_compression->name()));
  }
  if (has_shards && stage < 3) {
    opened.shards = open(" over the axis " + axis_of_shards, mesh.groups(axis_of_shards));
    const auto copies = mesh.groups_across(axis_of_shards);
    if (copies.front().size() > 1)
      opened.copies_of_shards = open(" across the axis " + axis_of_shards, copies);
  }
  const auto groups = mesh.groups(axis);
  if (groups.front().size() == 1 && stage < 3 && !has_shards) {  // Each rank has all parts.
    opened.stage = 0;
    return opened;
  }
  if (groups == mesh.gradient_groups()) return opened;  // All ranks with the same rows have different parts.
  opened.parts = open(" over the axis " + axis, groups);
  const auto across = mesh.groups_across(axis);
  if (across.front().size() > 1) opened.copies = open(" across the axis " + axis, across);
  return opened;
}

std::shared_ptr<BatchShares> checked_shares(const StrategyConfig& config, const Mesh& mesh) {
  const ReplicaWeights& weights = config.replica_weights;
  if (weights.are_measured()) {
    if (config.workers) {
      throw InvalidArgument(
          c10::str("[", config.name,
                   "] expected all replicas in one process for measured replica_weights, but there "
                   "are ",
                   config.workers->layout()->num_workers(), " workers: give a number for each replica"));
    }
    return mesh.num_replicas() > 1 ? std::make_shared<BatchShares>(mesh.num_replicas(), std::vector<double>())
                                   : nullptr;
  }
  const auto& values = weights.values();
  if (values.empty()) return nullptr;
  // An infinite sum would leave nothing to divide by.
  const bool are_positive =
      std::all_of(values.begin(), values.end(), [](double value) { return value > 0; }) &&
      std::isfinite(std::accumulate(values.begin(), values.end(), 0.0));
  if (!are_positive || static_cast<int>(values.size()) != mesh.num_replicas()) {
    throw InvalidArgument(c10::str(
        "[", config.name, "] expected positive replica_weights, one for each of the ", mesh.num_replicas(),
        mesh.num_replicas() == 1 ? " replica" : " replicas", ", but got ", c10::Join(", ", values)));
  }
  return std::make_shared<BatchShares>(mesh.num_replicas(), values);
}

ShardingOptions checked_sharding(const StrategyConfig& config, const Mesh& mesh) {
  ShardingOptions sharding = config.sharding;
  const auto fail = [&](const std::string& text) {
    throw InvalidArgument("[" + config.name + "] sharding: " + text);
  };
  if (sharding.stage < 0 || sharding.stage > 3)
    fail("expected a stage from 0 to 3, but got " + std::to_string(sharding.stage));
  if (sharding.stage == 0 && !sharding.axis.empty())
    fail("expected a stage from 1 to 3 with the axis " + sharding.axis + ", but got 0");
  if (sharding.stage == 0) return sharding;
  if (config.gradient_compression)
    fail("expected no gradient compression, but got " + config.gradient_compression->name());
  if (sharding.axis.empty()) sharding.axis = usual_axis_of_sharding(mesh);
  if (sharding.axis.empty()) {
    fail("expected a mesh with an axis over which gradients are summed, such as data, but got " + mesh.str() +
         ": data=1," + mesh.str() + " would do");
  }
  mesh.groups(sharding.axis);  // throws if there is no such axis
  for (const auto& axis : mesh.axes()) {
    if (axis.name != sharding.axis || axis.role != AxisRole::kModel) continue;
    fail("expected an axis over which gradients are summed, such as data, but got " + axis.name +
         ", along which models are cut");
  }
  return sharding;
}

std::vector<ReplicaBackends> Strategy::Core::axis_backends(int replica) const {
  std::vector<ReplicaBackends> backends;
  backends.reserve(axes.size());
  for (const auto& axis : axes) backends.push_back((axis ? axis : collectives)->backends(replica));
  return backends;
}

std::vector<CollectiveChannel*> Strategy::Core::called_channels() const {
  std::vector<CollectiveChannel*> channels{collectives.get()};
  for (const auto& axis : axes) {
    if (axis) channels.push_back(axis.get());
  }
  return channels;
}

const Mesh& Strategy::mesh() const {
  return core_->mesh;
}

const ShardingOptions& Strategy::sharding() const {
  return core_->sharding;
}

}  // namespace lockstep
