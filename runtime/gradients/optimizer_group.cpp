#include "lockstep/runtime/gradients/optimizer_group.h"

#include <c10/util/StringUtil.h>
#include <torch/serialize.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/elementwise_optimizers.h"
#include "lockstep/runtime/gradients/gradient_clipping.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

// GPUs read 16 bytes at once, if an address is a multiple of it.
constexpr int64_t kDeviceAlignment = 16;

void check_ownership(const ParameterDirectory& directory,
                     const std::vector<std::vector<at::Tensor>>& parameters, int first_replica) {
  std::map<const void*, size_t> owners;
  const auto id = [first_replica](auto replica) { return first_replica + static_cast<int>(replica); };
  for (size_t replica = 0; replica < parameters.size(); ++replica) {
    const auto entries = directory.find_all(parameters[replica]);
    for (size_t i = 0; i < parameters[replica].size(); ++i) {
      const at::Tensor& parameter = parameters[replica][i];
      const auto& entry = entries[i];
      if (entry && entry->replica != static_cast<int>(replica)) {
        throw InvalidArgument(c10::str("[optimizer] replica ", id(replica), "'s optimizer holds '",
                                       entry->name, "' of replica ", id(entry->replica),
                                       ": use model[replica]->parameters() with the factory's own replica"));
      }
      const auto [owner, is_new] = owners.emplace(parameter.unsafeGetTensorImpl(), replica);
      if (!is_new && owner->second == replica) {
        throw InvalidArgument(c10::str("[optimizer] replica ", id(replica), "'s optimizer holds ",
                                       directory.describe(parameter, i), " twice"));
      }
      if (!is_new) {
        throw InvalidArgument(c10::str("[optimizer] the optimizers of replicas ", id(owner->second), " and ",
                                       id(replica), " hold the same tensor, ",
                                       directory.describe(parameter, i),
                                       ": each replica needs parameters of its own; make the model by "
                                       "strategy.scope() too, and use model[replica]->parameters()"));
      }
    }
    const auto& first = parameters[0];
    const auto& own = parameters[replica];
    for (size_t i = 0; i < std::max(first.size(), own.size()); ++i) {
      if (i >= first.size() || i >= own.size() || whole_sizes(first[i]) != whole_sizes(own[i]) ||
          first[i].scalar_type() != own[i].scalar_type()) {
        throw InvalidArgument(c10::str(
            "[optimizer] expected the same parameters in the same order on every replica, but replica ",
            id(replica), " differs from replica ", first_replica, " at ",
            i < own.size() ? directory.describe(own[i], i) : directory.describe(first[i], i)));
      }
    }
  }
}

}  // namespace

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  return parameters;
}

OptimizerGroup::OptimizerGroup(std::vector<torch::optim::Optimizer*> optimizers,
                               std::unique_ptr<CollectiveChannel> channel, ReplicaThreads& threads,
                               std::shared_ptr<const ParameterDirectory> directory, Options options)
    : id_(options.id),
      first_replica_(options.first_replica),
      collectives_(std::move(options.collectives)),
      optimizers_(std::move(optimizers)),
      channel_(std::move(channel)),
      directory_(std::move(directory)),
      sharding_(std::move(options.sharding)),
      host_states_(options.keeps_state_on_host ? optimizers_.size() : 0),
      finished_steps_(optimizers_.size(), 0),
      joined_at_step_(optimizers_.size()),
      was_cut_off_(optimizers_.size(), 0),
      is_stepping_(optimizers_.size(), 0),
      has_scaler_(optimizers_.size(), 0) {
  for (const auto* optimizer : optimizers_) parameters_.push_back(parameters_of(*optimizer));
  check_ownership(*directory_, parameters_, first_replica_);
  check_sharding();
  if (!channel_ || parameters_[0].empty()) return;
  reducers_.resize(optimizers_.size());
  if (sharding_.stage == 1 || sharding_.stage == 2) sharded_.resize(optimizers_.size());
  const auto errors = threads.run([&](int replica) { make_reducer(replica, options); },
                                  [](int, const std::exception_ptr&) {});
  for (size_t replica = 0; replica < errors.size(); ++replica) {
    if (!errors[replica]) continue;
    if (options.rethrow) options.rethrow(static_cast<int>(replica), errors[replica]);
    std::rethrow_exception(errors[replica]);
  }
}

void OptimizerGroup::check_sharding() const {
  const auto& own = parameters_[0];
  if (std::any_of(own.begin(), own.end(),
                  [](const auto& parameter) { return cut_of(parameter) != nullptr; })) {
    const auto lacks = [&](const char* parts, const auto& channel, const auto& axis_of) {
      const bool needs =
          std::any_of(own.begin(), own.end(), [&](const auto& p) { return !axis_of(p).empty(); });
      if (needs && channel == nullptr) {
        throw InvalidArgument(
            c10::str("[sharding] expected a channel for parameters that ", parts, ", but got none"));
      }
    };
    lacks("are cut", sharding_.cuts, axis_of_rows);
    lacks("belong to a stage", sharding_.stages, axis_of_stages);
    for (const auto* optimizer : optimizers_) check_elementwise(*optimizer);
  }
  const auto shard = std::find_if(own.begin(), own.end(), is_slice);
  if (shard != own.end() && sharding_.stage != 3 && sharding_.shards == nullptr && channel_) {
    throw InvalidArgument(c10::str(
        "[sharding] expected a channel of shards in an optimizer with sharding stage ", sharding_.stage,
        ", but got none for ", directory_->describe(*shard, static_cast<size_t>(shard - own.begin()))));
  }
  if (sharding_.stage == 0) return;
  if (sharding_.stage < 0 || sharding_.stage > 3) {
    throw InvalidArgument(
        c10::str("[sharding] expected a stage from 0 to 3 of an optimizer, but got ", sharding_.stage));
  }
  for (const auto* optimizer : optimizers_) check_elementwise(*optimizer);
  for (size_t i = 0; i < own.size() && sharding_.stage < 3; ++i) {
    // Slices of rows count their elements in this order.
    if (axis_of_rows(own[i]).empty() || own[i].is_contiguous()) continue;
    throw InvalidArgument(c10::str("[sharding] expected contiguous parts of parameters that are cut, but ",
                                   directory_->describe(own[i], i), " has strides ", own[i].strides(),
                                   " with sizes ", own[i].sizes()));
  }
  if (!channel_) return;
  const int all = channel_->backend(0)->getSize();
  const int parts = sharding_.parts ? sharding_.parts->backend(0)->getSize() : all;
  const int copies = sharding_.copies ? sharding_.copies->backend(0)->getSize() : 1;
  if (parts * copies == all) return;
  throw InvalidArgument(c10::str("[sharding] expected channels of which the number of ranks multiply to ",
                                 all, ", but got ", parts, " ranks with different parts and ", copies,
                                 " with the same"));
}

/// Called in the replica's thread.
void OptimizerGroup::make_reducer(int replica, const Options& options) {
  const auto self = static_cast<size_t>(replica);
  // Each layout asks for all names. Parameters may join a module later.
  const auto entries = std::make_shared<const std::vector<std::optional<ParameterDirectory::Entry>>>(
      directory_->find_all(parameters_[self]));
  const auto name_of = [this, self, entries](size_t i) {
    const auto& entry = (*entries)[i];
    return entry ? "'" + entry->name + "'" : directory_->describe(parameters_[self][i], i);
  };
  const bool occupies_devices = channel_->occupies_devices();
  GradientReducer::Options reducing{
      .buckets = options.buckets,
      .is_accumulating = [is_accumulating = options.is_accumulating,
                          replica] { return is_accumulating(replica); },
      .name_of = name_of,
      .settling_steps = occupies_devices && optimizers_.size() > 1 ? kSettlingRuns : 0,
      .slot_alignment = occupies_devices ? kDeviceAlignment : 1};
  const bool may_be_sparse = options.has_sparse_gradients && sharding_.stage != 1 && sharding_.stage != 2;
  if (may_be_sparse) {
    const auto owners = directory_->owners(parameters_[self]);
    for (size_t i = 0; i < owners.size(); ++i)
      if (owners[i] && options.has_sparse_gradients(*owners[i])) reducing.sparse.push_back(i);
  }
  const auto backends_of = [replica](const auto& channel) {
    return channel ? std::optional(channel->backends(replica)) : std::nullopt;
  };
  const auto copies = backends_of(sharding_.copies);
  if (sharding_.stage == 3) {
    reducing.copies_of_shards = copies;
  } else if (sharding_.stage > 0) {
    reducing.sharding.emplace(
        ShardedSums{.stage = sharding_.stage, .parts = parts(replica), .copies = copies});
    reducing.copies_of_shards = backends_of(sharding_.copies_of_shards);
  }
  reducers_[self] =
      std::make_unique<GradientReducer>(parameters_[self], channel_->backends(replica), std::move(reducing));
  if (sharded_.empty()) return;
  sharded_[self] =
      std::make_unique<ShardedParameters>(*optimizers_[self], *reducers_[self], parts(replica), name_of);
}

int OptimizerGroup::num_parts() const {
  return sharding_stage() == 0 ? 1 : parts(0).device->getSize();
}

/// Returns the replica's backends among the ranks with different parts, in stages 1 to 3.
ReplicaBackends OptimizerGroup::parts(int replica) const {
  return (sharding_.parts ? *sharding_.parts : *channel_).backends(replica);
}

at::Tensor OptimizerGroup::clip(int replica, double max_norm) const {
  const auto self = static_cast<size_t>(replica);
  const auto parameters = parameters_of(*optimizers_[self]);
  if (!is_divided()) return clip_gradients(parameters, max_norm);
  DividedParameters divided{.like = parameters_[self][0]};
  // Parameters outside of stages are the same on the ranks of all stages.
  const bool is_first_stage = !sharding_.stages || sharding_.stages->backend(replica)->getRank() == 0;
  const auto list_of = [&](const at::Tensor& parameter, bool is_slice) -> std::vector<at::Tensor>& {
    const auto* shard = sharded_parameter_of(parameter);
    const bool is_staged = shard != nullptr && !shard->stage_axis.empty();
    if (is_staged ? shard->is_copy : !is_first_stage) return divided.uncounted;
    const bool is_of_cut = !axis_of_rows(parameter).empty();
    if (is_slice) return is_of_cut ? divided.slices_of_cuts : divided.slices;
    return is_of_cut ? divided.cuts : divided.whole;
  };
  if (const auto* part = sharded(replica)) {
    for (size_t i = 0; i < part->slices().size(); ++i)
      list_of(parameters_[self][part->slices()[i].parameter], /*is_slice=*/true).push_back(part->tensor(i));
    for (const size_t i : part->shards()) {
      const auto& shard = parameters_[self][i];
      auto& list = list_of(shard, /*is_slice=*/true);
      (&list == &divided.slices ? divided.shards : list).push_back(shard);
    }
  } else {
    for (const auto& parameter : parameters) list_of(parameter, is_slice(parameter)).push_back(parameter);
  }
  const auto over = [](const ReplicaBackends& ranks) {
    return [device = ranks.device](const at::Tensor& squares) {
      std::vector<at::Tensor> tensors{squares};
      device->allreduce(tensors, c10d::AllreduceOptions())->wait(kNoTimeout);
    };
  };
  SquareSums sums;
  if (sharding_stage() > 0) sums.over_slices = over(parts(replica));
  if (sharding_.shards) sums.over_shards = over(sharding_.shards->backends(replica));
  if (sharding_.cuts) sums.over_cuts = over(sharding_.cuts->backends(replica));
  if (sharding_.stages) sums.over_stages = over(sharding_.stages->backends(replica));
  return clip_divided_gradients(divided, max_norm, sums);
}

void OptimizerGroup::agree_on_found_inf(int replica, const at::Tensor& found_inf) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors{found_inf.view({1})};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  if (sharding_stage() > 0) parts(replica).device->allreduce(tensors, options)->wait(kNoTimeout);
  for (auto* channel : {sharding_.shards.get(), sharding_.cuts.get(), sharding_.stages.get()}) {
    if (channel != nullptr) channel->backends(replica).device->allreduce(tensors, options)->wait(kNoTimeout);
  }
}

std::vector<CollectiveChannel*> OptimizerGroup::channels() const {
  std::vector<CollectiveChannel*> channels;
  for (auto* channel : {channel_.get(), sharding_.parts.get(), sharding_.copies.get(), sharding_.shards.get(),
                        sharding_.copies_of_shards.get(), sharding_.cuts.get(), sharding_.stages.get()}) {
    if (channel != nullptr) channels.push_back(channel);
  }
  return channels;
}

/// Returns the channels on whose collectives a step depends.
std::vector<const CollectiveChannel*> OptimizerGroup::counted_channels() const {
  const auto own = channels();
  std::vector<const CollectiveChannel*> counted(own.begin(), own.end());
  counted.insert(counted.end(), collectives_.begin(), collectives_.end());
  return counted;
}

void OptimizerGroup::prepare(int replica) {
  if (auto* sharded = this->sharded(replica)) return sharded->prepare();
  if (auto* reducer = this->reducer(replica)) reducer->prepare();
}

bool OptimizerGroup::holds(const torch::optim::Optimizer& optimizer) const {
  return std::find(optimizers_.begin(), optimizers_.end(), &optimizer) != optimizers_.end();
}

void OptimizerGroup::check_parameters(int replica) const {
  const int id = first_replica_ + replica;
  const auto& known = parameters_[static_cast<size_t>(replica)];
  const auto given = parameters_of(*optimizers_[static_cast<size_t>(replica)]);
  const auto contains = [](auto begin, auto end, const at::Tensor& parameter) {
    return std::any_of(begin, end, [&](const at::Tensor& other) { return other.is_same(parameter); });
  };
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  if (std::equal(given.begin(), given.end(), known.begin(), known.end(), same)) return;
  for (size_t i = 0; i < given.size(); ++i) {
    const at::Tensor& parameter = given[i];
    if (i < known.size() && parameter.is_same(known[i])) continue;
    const auto entry = directory_->find(parameter);
    if (entry && entry->replica != replica) {
      throw InvalidArgument(c10::str("[optimizer] replica ", id, "'s optimizer holds '", entry->name,
                                     "' of replica ", first_replica_ + entry->replica,
                                     ": make the optimizer by strategy.scope() with "
                                     "model[replica]->parameters()"));
    }
    if (contains(given.begin(), given.begin() + static_cast<int64_t>(i), parameter)) {
      throw InvalidArgument(c10::str("[optimizer] replica ", id, "'s optimizer holds ",
                                     directory_->describe(parameter, i), " twice"));
    }
    if (!contains(known.begin(), known.end(), parameter)) {
      throw InvalidArgument(c10::str("[optimizer] replica ", id, "'s optimizer holds ",
                                     directory_->describe(parameter, i),
                                     ", which joined after scope made the optimizer: its gradients would not "
                                     "be summed; make a new optimizer in scope"));
    }
    break;  // a known one that moved: an earlier one is gone, or the order has changed
  }
  for (size_t i = 0; i < known.size(); ++i) {
    if (contains(given.begin(), given.end(), known[i])) continue;
    throw InvalidArgument(c10::str("[optimizer] replica ", id, "'s optimizer no longer holds ",
                                   directory_->describe(known[i], i), "; make a new optimizer in scope"));
  }
  for (size_t i = 0; i < known.size(); ++i) {
    if (given[i].is_same(known[i])) continue;
    throw InvalidArgument(
        c10::str("[optimizer] replica ", id,
                 "'s optimizer holds its parameters in another order than scope made it with, first at ",
                 directory_->describe(given[i], i), "; make a new optimizer in scope"));
  }
}

void OptimizerGroup::count_step(int replica) {
  const auto self = static_cast<size_t>(replica);
  ++finished_steps_[self];
  is_stepping_[self] = 0;
  if (!channel_ && !has_parts()) return;
  joined_at_step_[self].clear();
  for (const auto* channel : counted_channels())
    joined_at_step_[self].push_back(channel->num_joined(replica));
}

void OptimizerGroup::check_steps() {
  if (!channel_ && !has_parts()) return;
  std::vector<uint64_t> intact;
  for (const auto* channel : counted_channels()) intact.push_back(channel->num_intact());
  bool is_torn = false;  // whether the parts of the state belong to different steps
  for (size_t replica = 0; replica < optimizers_.size(); ++replica) {
    const auto joined = std::exchange(joined_at_step_[replica], {});  // the channels restart their counts
    for (size_t i = 0; i < joined.size(); ++i) {
      if (joined[i] > intact[i]) was_cut_off_[replica] = 1;
    }
    is_torn = is_torn || is_stepping_[replica] != 0 || was_cut_off_[replica] != 0 ||
              finished_steps_[replica] != finished_steps_[0];
  }
  if (is_divided() && is_torn) was_cut_off_.assign(was_cut_off_.size(), 1);
}

bool OptimizerGroup::is_consistent() const {
  return std::all_of(finished_steps_.begin(), finished_steps_.end(),
                     [this](int64_t steps) { return steps == finished_steps_[0]; }) &&
         std::none_of(was_cut_off_.begin(), was_cut_off_.end(), [](char was) { return was != 0; });
}

std::string OptimizerGroup::describe_steps() const {
  std::vector<std::string> texts;
  for (size_t replica = 0; replica < finished_steps_.size(); ++replica) {
    texts.push_back(c10::str(finished_steps_[replica], was_cut_off_[replica] && !is_divided()
                                                           ? " (the last by a sum that was cut off)"
                                                           : ""));
  }
  return c10::Join(", ", texts) + " finished steps" +
         (!is_divided() ? "" : " and parts of a sharded state that do not belong together");
}

bool OptimizerGroup::has_scaler() const {
  return std::any_of(has_scaler_.begin(), has_scaler_.end(), [](char has) { return has != 0; });
}

void OptimizerGroup::copy_state_from(size_t source) {
  if (is_divided()) return;
  std::stringstream stream;
  torch::save(*optimizers_[source], stream);
  const std::string state = stream.str();
  for (size_t replica = 0; replica < optimizers_.size(); ++replica) {
    if (replica == source) continue;
    std::istringstream input(state);
    torch::load(*optimizers_[replica], input,
                parameters_[replica].empty() ? torch::Device(torch::kCPU) : parameters_[replica][0].device());
    finished_steps_[replica] = finished_steps_[source];
    was_cut_off_[replica] = 0;
  }
}

}  // namespace lockstep
