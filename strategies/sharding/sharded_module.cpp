#include "lockstep/strategies/sharding/sharded_module.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "lockstep/parameter_server/variables/served_table.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/sharding/internal/sharded_unit.h"
#include "lockstep/strategies/sharding/internal/unit_call.h"

namespace lockstep {
namespace {

using torch::nn::Module;

/// Stands for a module of the block, with its name, its buffers, and shards in place of its parameters.
class ShardHolder final : public Module, public AggregatesBuffers {
 public:
  explicit ShardHolder(std::shared_ptr<Module> original)
      : Module(original->name()), original_(std::move(original)) {
    Module::train(original_->is_training());
  }
  /// Sets the mode of the module that computes, too: the block's own.
  void train(bool on = true) override {
    Module::train(on);
    original_->train(on);
  }
  BufferAggregation buffer_aggregation(const std::string& name) const override {
    const auto* declared = dynamic_cast<const AggregatesBuffers*>(original_.get());
    return declared != nullptr ? declared->buffer_aggregation(name) : BufferAggregation::kMean;
  }

 private:
  std::shared_ptr<Module> original_;
};

/// Appends the parameters of a module outside the units in it, each once.
void append_parameters(const Module& module, const std::string& prefix,
                       std::vector<UnitParameter>& parameters) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    bool is_known = is_slice(item.value());
    for (const auto& known : parameters) is_known = is_known || known.tensor.is_same(item.value());
    if (!is_known) parameters.push_back({prefix + item.key(), item.value()});
  }
  for (const auto& child : module.named_children()) {
    if (dynamic_cast<const HasShardedUnits*>(child.value().get()) == nullptr)
      append_parameters(*child.value(), prefix + child.key() + ".", parameters);
  }
}

using Holders = std::map<const Module*, std::shared_ptr<Module>>;

/// Registers in `holder` what `original` has.
void mirror_module(Module& holder, const Module& original, const ShardedUnit& unit, Holders& holders) {
  for (const auto& item : original.named_parameters(/*recurse=*/false)) {
    const auto shard = is_slice(item.value()) ? item.value() : unit.shard_of(item.value());
    holder.register_parameter(item.key(), shard, shard.requires_grad());
  }
  for (const auto& item : original.named_buffers(/*recurse=*/false))
    holder.register_buffer(item.key(), item.value());
  for (const auto& child : original.named_children()) {
    const auto& module = child.value();
    if (dynamic_cast<const HasShardedUnits*>(module.get()) != nullptr) {
      holder.register_module(child.key(), module);
      continue;
    }
    auto& own = holders[module.get()];
    if (own == nullptr) {
      own = std::make_shared<ShardHolder>(module);
      mirror_module(*own, *module, unit, holders);
    }
    holder.register_module(child.key(), own);
  }
}

void check_block(const std::shared_ptr<Module>& block, const std::string& unit) {
  for (const auto& module : block->modules()) {
    if (dynamic_cast<const ServedTable*>(module.get()) == nullptr) continue;
    throw InvalidArgument("[Sharded] expected modules whose parameters can be cut, but unit '" + unit +
                          "' has a " + module->name() + ", whose rows are on parameter servers");
  }
}

}  // namespace

namespace detail {

std::vector<torch::Tensor> ShardedForward::watch(std::vector<torch::Tensor> inputs) {
  return call_->watch(std::move(inputs));
}

std::vector<torch::Tensor> ShardedForward::end(std::vector<torch::Tensor> results) {
  return call_->end(std::move(results));
}

}  // namespace detail

ShardedModule::ShardedModule(std::shared_ptr<torch::nn::Module> block, UnitOptions options)
    : block_(std::move(block)) {
  if (block_ == nullptr) throw InvalidArgument("[Sharded] expected a block, but got an empty one");
  if (options.name.empty()) options.name = block_->name();
  check_block(block_, options.name);
  std::vector<UnitParameter> parameters;
  append_parameters(*block_, "", parameters);
  unit_ = std::make_shared<ShardedUnit>(parameters, std::move(options));
  parameters.clear();
  Module::train(block_->is_training());  // Children, which come next, have flags of their own.
  Holders holders;
  mirror_module(*this, *block_, *unit_, holders);
  for (const auto& parameter : this->parameters()) {
    if (!gathers(parameter)) others_.emplace_back(parameter, *sharded_parameter_of(parameter));
  }
}

ShardedModule::~ShardedModule() = default;

detail::ShardedForward ShardedModule::begin() {
  return detail::ShardedForward(UnitCall::begin(unit_));
}

torch::OrderedDict<std::string, torch::Tensor> ShardedModule::whole_parameters() {
  const at::NoGradGuard no_grad;
  const auto call = UnitCall::begin(unit_);
  torch::OrderedDict<std::string, torch::Tensor> copies;
  for (const auto& [name, tensor] : unit_->named_parameters()) copies.insert(name, tensor.detach().clone());
  return copies;
}

bool ShardedModule::gathers(const torch::Tensor& shard) const {
  const auto own = unit_->shards();
  return std::any_of(own.begin(), own.end(), [&](const auto& other) { return other.is_same(shard); });
}

void ShardedModule::give_up() {
  unit_->give_up();
}

const UnitOptions& ShardedModule::unit_options() const {
  return unit_->options();
}

void ShardedModule::name_units(const std::string& name) {
  unit_->rename(name);
}

int ShardedModule::num_sharing() const {
  return unit_->num_sharing();
}

std::shared_ptr<GatheredUnits> ShardedModule::gathered_units() const {
  const auto units = unit_->replica_units();
  return units == nullptr ? nullptr : std::shared_ptr<GatheredUnits>(units, &units->counter);
}

void ShardedModule::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  unit_->bind(replica);
  // The block's own modules are registered nowhere else.
  for (const auto& module : block_->modules()) {
    if (auto* bound = dynamic_cast<ReplicaBound*>(module.get())) bound->bind(replica);
  }
}

void ShardedModule::train(bool on) {
  Module::train(on);
  block_->train(on);
}

void ShardedModule::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  follow_parameters();
}

void ShardedModule::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  follow_parameters();
}

void ShardedModule::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  follow_parameters();
}

void ShardedModule::follow_parameters() {
  unit_->follow_shards();
  for (const auto& [shard, place] : others_) mark_shard(shard, place);  // Moving a parameter drops its mark.
}

BufferAggregation ShardedModule::buffer_aggregation(const std::string& name) const {
  const auto* declared = dynamic_cast<const AggregatesBuffers*>(block_.get());
  return declared != nullptr ? declared->buffer_aggregation(name) : BufferAggregation::kMean;
}

void ShardedModule::pretty_print(std::ostream& stream) const {
  const auto& options = unit_->options();
  stream << "lockstep::Sharded(" << block_->name() << ", part " << options.index << " of " << options.size
         << ")";
}

GatheredUnits& gathered_units(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    auto* owner = dynamic_cast<HasShardedUnits*>(module.get());
    if (owner == nullptr || owner->sharded_units().empty()) continue;
    const auto* unit = owner->sharded_units().front();
    if (const auto counter = unit->gathered_units()) return *counter;
    throw InvalidArgument("[gathered_units] expected a model that Strategy::scope() returned, but unit '" +
                          unit->unit_options().name + "' belongs to no replica yet");
  }
  throw InvalidArgument("[gathered_units] expected a model with sharded units, but '" + model.name() +
                        "' has none");
}

void name_sharded_units(const torch::nn::Module& model) {
  for (const auto& item : model.named_modules()) {
    auto* owner = dynamic_cast<HasShardedUnits*>(item.value().get());
    if (owner != nullptr && !item.key().empty()) owner->name_units(item.key());
  }
}

}  // namespace lockstep
