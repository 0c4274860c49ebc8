#include "lockstep/training/state/training_state.h"

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/internal/sha256.h"
#include "lockstep/runtime/devices/internal/random_state.h"
#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"
#include "lockstep/training/state/internal/metric_states.h"
#include "lockstep/training/state/internal/replica_states.h"
#include "lockstep/training/state/internal/sharded_states.h"
#include "lockstep/training/state/internal/text_tensor.h"
#include "lockstep/training/state/internal/whole_tensors.h"
#include "lockstep/training/state/optimizer_state.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

/// Format of the files that docs/checkpoints.md describes. A reader takes its own and earlier formats, and
/// ignores unknown entries.
constexpr int64_t kFormat = 1;

StateValue::Dict dict_of(const NamedTensors& tensors) {
  StateValue::Dict dict;
  for (const auto& [name, tensor] : tensors) dict.add(name, tensor);
  return dict;
}

NamedTensors tensors_of(const StateView& view) {
  NamedTensors tensors;
  for (const auto& [key, value] : view.entries()) {
    const auto* name = std::get_if<std::string>(&key);
    if (name == nullptr) value.fail("a name as the key", "a number");
    tensors.emplace_back(*name, value.tensor());
  }
  return tensors;
}

StateValue::Dict save_progress(const TrainingProgress& progress) {
  StateValue::Dict dict;
  dict.add("epoch", progress.epoch);
  dict.add("step", progress.step);
  dict.add("dataset_epoch", progress.dataset_epoch);
  dict.add("position", progress.position);
  dict.add("shuffle_seed", progress.shuffle_seed);
  dict.add("metrics", saved_numbers(progress.metrics));
  return dict;
}

TrainingProgress load_progress(const StateView& view) {
  TrainingProgress progress{.epoch = view.at("epoch").count(),
                            .step = view.at("step").count(),
                            .dataset_epoch = view.at("dataset_epoch").count(),
                            .position = view.at("position").count(),
                            .shuffle_seed = view.at("shuffle_seed").integer(),
                            .metrics = {}};
  for (const auto& [name, number] : numbers_in(view.at("metrics"))) progress.metrics[name] = number;
  return progress;
}

/// Returns the tensors that are equal on all replicas.
NamedTensors parameters_of(const torch::nn::Module& module) {
  std::set<std::string> buffers;
  for (const auto& item : module.named_buffers()) buffers.insert(item.key());
  NamedTensors tensors = state_dict(module);
  std::erase_if(tensors, [&](const auto& tensor) { return buffers.contains(tensor.first); });
  return tensors;
}

/// Returns each buffer as it is evaluated, of all replicas' values.
NamedTensors combined_buffers(const torch::nn::Module& module, const NamedTensors& stacked_buffers) {
  const auto rules = buffer_aggregations(module);
  NamedTensors combined;
  for (const auto& [name, stacked] : stacked_buffers)
    combined.emplace_back(name, aggregate_values(name, rules.at(name), stacked.unbind()));
  return combined;
}

/// Returns the model as it is evaluated: the given parameters of replica 0, and the combined buffers.
StateValue::Dict save_model(const torch::nn::Module& module, const StateValue::Dict& parameters,
                            const NamedTensors& buffers) {
  std::map<std::string, torch::Tensor> tensors(buffers.begin(), buffers.end());
  for (const auto& [name, value] : parameters.entries)
    tensors.emplace(std::get<std::string>(name), *value.get_if<torch::Tensor>());
  StateValue::Dict model;
  for (const auto& [name, tensor] : state_dict(module))
    if (const auto found = tensors.find(name); found != tensors.end()) model.add(name, found->second);
  return model;
}

/// Ignores a state of another size, which is from another kind of device.
void set_stream(const at::Generator& generator, const StateView& saved) {
  const torch::Tensor& state = saved.tensor();
  if (state.scalar_type() != torch::kUInt8 || state.dim() != 1) saved.fail("bytes");
  if (state.numel() != random_state_of(generator).numel()) return;
  try {
    set_random_state(generator, state);
  } catch (const c10::Error& error) {
    saved.fail("the state of a random generator",
               std::string("one that is refused: ") + error.what_without_backtrace());
  }
}

}  // namespace

void TrainingState::add_model(std::vector<ModulePointer> replicas) {
  if (!model_.empty()) throw InvalidArgument("[TrainingState] expected one model, but got two");
  model_ = std::move(replicas);
}

void TrainingState::add_optimizer(const std::string& name, std::vector<torch::optim::Optimizer*> optimizers) {
  for (const auto* optimizer : optimizers)
    optimizer_state(*optimizer);  // refuses unsupported optimizers now, not after an epoch
  if (!optimizers_.emplace(name, std::move(optimizers)).second)
    throw InvalidArgument("[TrainingState] expected a name for each optimizer, but got '" + name + "' twice");
}

void TrainingState::add_scaler(Mirrored<GradScaler>& scaler) {
  std::vector<GradScaler*> replicas;
  for (auto& value : scaler.local_values()) replicas.push_back(&value);
  add_scaler(std::move(replicas));
}

void TrainingState::add_scaler(std::vector<GradScaler*> replicas) {
  if (!scalers_.empty()) throw InvalidArgument("[TrainingState] expected one scaler, but got two");
  scalers_ = std::move(replicas);
}

void TrainingState::add_metric(std::vector<MetricAccess> replicas) {
  const std::string name = replicas.at(0).name;
  metrics_.resize(replicas.size());
  for (const auto& metric : metrics_[0]) {
    if (metric.name == name)
      throw InvalidArgument("[TrainingState] expected a name for each metric, but got '" + name + "' twice");
  }
  for (size_t local = 0; local < replicas.size(); ++local)
    metrics_[local].push_back(std::move(replicas[local]));
}

/// A collective if an optimizer's state is sharded.
StateValue::Dict TrainingState::save_shared() const {
  std::vector<NamedTensors> parameters;
  parameters.reserve(model_.size());
  for (const auto& replica : model_) parameters.push_back(parameters_of(*replica));
  StateValue::Dict optimizers;
  for (const auto& [name, of_replicas] : optimizers_)
    optimizers.add(name, divided_optimizer_state(*strategy_, of_replicas));
  StateValue::Dict shared;
  shared.add("model", dict_of(divided_tensors(*strategy_, parameters)));
  shared.add("optimizers", std::move(optimizers));
  return shared;
}

/// Each worker cuts its own state: a tensor that only some workers have would be in no shard or in two. A
/// collective.
void TrainingState::check_same_tensors(const StateValue::Dict& shared) const {
  std::string list;
  visit_tensors(StateValue(shared), [&](const std::string& name, const torch::Tensor& tensor) {
    list += name + " " + std::to_string(tensor.nbytes()) + "\n";
  });
  const auto of_workers = strategy_->extended().gather_tensors({text_tensor(sha256(list))});
  const std::string first = text_of_tensor(of_workers.front().front());
  for (size_t worker = 1; worker < of_workers.size(); ++worker) {
    if (text_of_tensor(of_workers[worker].front()) == first) continue;
    throw InvalidArgument(
        "[TrainingState] expected parameters and optimizer states of the same names and sizes on all "
        "workers, but worker " +
        std::to_string(worker) + " has others than worker 0");
  }
}

StateValue::Dict TrainingState::snapshot(const TrainingProgress& progress, const StateShard& shard) {
  const Collected collected = collect(progress, shard);
  return with_whole_tensors(*strategy_, collected.shared, collected.own);
}

TrainingState::Collected TrainingState::collect(const TrainingProgress& progress, const StateShard& shard) {
  if (model_.empty()) throw InvalidArgument("[TrainingState] expected a model, but got none");
  const NamedTensors stacked = gather_buffers(*strategy_, model_);
  // On every worker, so that all learn of buffers that should be the same and differ.
  const NamedTensors buffers = combined_buffers(*model_[0], stacked);
  StateValue::Dict replicas = save_replicas(stacked);
  const StateValue metrics = metrics_.empty() ? StateValue() : save_metric_states(*strategy_, metrics_);
  const bool is_chief = strategy_->first_local_replica() == 0;
  const StateValue::Dict shared = save_shared();
  StateValue::Dict own = shared;
  if (shard.count > 1) {
    check_same_tensors(shared);
    own = shard_of(shared, shard);
    own.add(kShardKey, mark_of(shard));
  }
  if (!is_chief) return {shard.count > 1 ? std::move(own) : StateValue::Dict(), shared};

  StateValue::Dict lockstep;
  lockstep.add("format", kFormat);
  lockstep.add("version", LOCKSTEP_VERSION);
  StateValue::Dict state;
  if (shard.count > 1) state.add(kShardKey, *own.find(kShardKey));
  state.add("lockstep", std::move(lockstep));
  state.add("model", save_model(*model_[0], *own.find("model")->get_if<StateValue::Dict>(), buffers));
  state.add("replicas", std::move(replicas));
  state.add("optimizers", *own.find("optimizers"));
  state.add("gradient_orders", save_gradient_orders());
  state.add("gradient_kinds", save_gradient_kinds());
  if (!scalers_.empty()) {
    const GradScalerState of_scaler = scalers_[0]->state();
    StateValue::Dict scaler;
    scaler.add("scale", of_scaler.scale);
    scaler.add("growth_tracker", of_scaler.growth_tracker);
    state.add("scaler", std::move(scaler));
  }
  if (!metrics_.empty()) state.add("metrics", metrics);
  state.add("progress", save_progress(progress));
  return {std::move(state), shared};
}

void TrainingState::save(const std::string& path, const TrainingProgress& progress) {
  const Collected collected = collect(progress);
  write_whole_tensors(
      *strategy_, collected.shared, collected.own,
      strategy_->first_local_replica() != 0
          ? std::function<void(WholeTensors&)>()
          : [&](WholeTensors& whole) { save_state_archive(path, collected.own, std::ref(whole)); });
}

TrainingProgress TrainingState::load(const std::string& path) {
  return restore(load_state_file(path), path);
}

TrainingProgress TrainingState::restore(const StateValue& state, const std::string& source) {
  if (model_.empty()) throw InvalidArgument("[TrainingState] expected a model, but got none");
  const StateView view(state, source);
  if (const auto* dict = state.get_if<StateValue::Dict>()) check_whole(*dict, source);
  const StateView format = view.at("lockstep").at("format");
  if (format.count() > kFormat) {
    format.fail("at most " + std::to_string(kFormat),
                std::to_string(format.count()) + ", of Lockstep " + view.at("lockstep").at("version").text());
  }
  const TrainingProgress progress = load_progress(view.at("progress"));
  load_state_dict(model_, strategy_->first_local_replica(), tensors_of(view.at("model")), {.source = source});
  load_optimizers(view.at("optimizers"), source);
  if (const auto orders = view.find("gradient_orders")) load_gradient_orders(*orders);
  if (const auto kinds = view.find("gradient_kinds")) load_gradient_kinds(*kinds);
  if (!scalers_.empty()) load_scalers(view.at("scaler"));
  load_replicas(view.at("replicas"));
  load_metrics(view);
  return progress;
}

void TrainingState::load_optimizers(const StateView& saved, const std::string& source) {
  for (const auto& [name, of_replicas] : optimizers_) {
    const StateView state = saved.at(name);
    for (auto* optimizer : of_replicas)
      load_optimizer_state(*optimizer, state.value(), source + ": optimizer '" + name + "'");
  }
}

StateValue::Dict TrainingState::save_gradient_orders() const {
  StateValue::Dict orders;
  for (const auto& [name, of_replicas] : optimizers_) {
    const auto order = strategy_->extended().gradient_order(*of_replicas[0]);
    orders.add(name, StateValue::List(order.begin(), order.end()));
  }
  return orders;
}

void TrainingState::load_gradient_orders(const StateView& saved) {
  for (const auto& [name, of_replicas] : optimizers_) {
    const StateView of_optimizer = saved.at(name);
    std::vector<int64_t> order;
    for (const auto& item : of_optimizer.items()) order.push_back(item.integer());
    if (order.empty()) continue;  // was not known when saved
    try {
      strategy_->extended().set_gradient_order(*of_replicas[0], order);
    } catch (const InvalidArgument& error) {
      of_optimizer.fail("an order of the optimizer's parameters", error.what());
    }
  }
}

StateValue::Dict TrainingState::save_gradient_kinds() const {
  StateValue::Dict kinds;
  for (const auto& [name, of_replicas] : optimizers_) {
    StateValue::List list;
    for (const GradientKind kind : strategy_->extended().gradient_kinds(*of_replicas[0]))
      list.emplace_back(static_cast<int64_t>(kind));
    kinds.add(name, std::move(list));
  }
  return kinds;
}

void TrainingState::load_gradient_kinds(const StateView& saved) {
  for (const auto& [name, of_replicas] : optimizers_) {
    const StateView of_optimizer = saved.at(name);
    std::vector<GradientKind> kinds;
    for (const auto& item : of_optimizer.items()) {
      if (item.count() > static_cast<int64_t>(GradientKind::kSparse))
        item.fail("a kind of gradient, from 0 to 2", std::to_string(item.count()));
      kinds.push_back(static_cast<GradientKind>(item.count()));
    }
    if (kinds.empty()) continue;  // were not known when saved
    try {
      strategy_->extended().set_gradient_kinds(*of_replicas[0], kinds);
    } catch (const InvalidArgument& error) {
      of_optimizer.fail("the kinds of the optimizer's gradients", error.what());
    }
  }
}

void TrainingState::load_scalers(const StateView& saved) {
  const GradScalerState state{.scale = saved.at("scale").number(),
                              .growth_tracker = saved.at("growth_tracker").count()};
  try {
    for (auto* scaler : scalers_) scaler->load_state(state);
  } catch (const InvalidArgument& error) {
    saved.fail("the state of a GradScaler", std::string("one that it refuses: ") + error.what());
  }
}

void TrainingState::load_metrics(const StateView& state) {
  if (const auto saved = state.find("metrics")) {
    load_metric_states(*strategy_, *saved, metrics_);
    return;
  }
  for (const auto& of_replica : metrics_)
    for (const auto& metric : of_replica) metric.reset();
}

StateValue::Dict TrainingState::save_replicas(const NamedTensors& stacked_buffers) {
  std::vector<torch::Tensor> generators;
  const auto of_replicas = replica_generators(*strategy_);
  for (size_t local = 0; local < of_replicas.size(); ++local)
    if (strategy_->is_first_of_replica(local))
      generators.push_back(random_state_of(of_replicas[local]).cpu());
  const auto streams = gather_of_replicas(*strategy_, generators);
  StateValue::Dict replicas;
  replicas.add("count", strategy_->num_replicas_in_sync());
  replicas.add("buffers", dict_of(stacked_buffers));
  replicas.add("generators", StateValue::List(streams.begin(), streams.end()));
  if (strategy_->mesh().cuts_models()) {
    std::vector<torch::Tensor> own;
    for (const auto& generator : rank_generators(*strategy_)) own.push_back(random_state_of(generator).cpu());
    const auto of_ranks = gather_of_replicas(*strategy_, own);
    replicas.add("mesh", strategy_->mesh().str());
    replicas.add("rank_generators", StateValue::List(of_ranks.begin(), of_ranks.end()));
  }
  return replicas;
}

void TrainingState::load_replicas(const StateView& saved) {
  if (const auto mesh = saved.find("mesh"); mesh && mesh->text() == strategy_->mesh().str()) {
    const auto of_ranks = saved.at("rank_generators").items();
    if (static_cast<int>(of_ranks.size()) != strategy_->num_ranks()) {
      saved.at("rank_generators")
          .fail(std::to_string(strategy_->num_ranks()) + " generators", std::to_string(of_ranks.size()));
    }
    auto own = rank_generators(*strategy_);
    for (size_t local = 0; local < own.size(); ++local)
      set_stream(own[local], of_ranks[local + static_cast<size_t>(strategy_->first_local_replica())]);
  }
  const int count = strategy_->num_replicas_in_sync();
  if (saved.at("count").count() != count) return;  // keeps the model's own buffers, which are combined
  const StateView buffers = saved.at("buffers");
  const auto generators = saved.at("generators").items();
  if (static_cast<int>(generators.size()) != count)
    saved.at("generators").fail(std::to_string(count) + " generators", std::to_string(generators.size()));
  const torch::NoGradGuard no_grad;
  auto streams = replica_generators(*strategy_);
  for (size_t local = 0; local < model_.size(); ++local) {
    const auto replica = static_cast<int64_t>(strategy_->replica_of(local));
    for (auto& item : model_[local]->named_buffers()) {
      torch::Tensor buffer = item.value();
      if (!buffer.defined()) continue;
      auto shape = buffer.sizes().vec();
      shape.insert(shape.begin(), count);
      buffer.copy_(buffers.at(item.key()).tensor_like(buffer.unsqueeze(0).expand(shape))[replica]);
    }
    set_stream(streams[local], generators[static_cast<size_t>(replica)]);
  }
}

}  // namespace lockstep
