#include "lockstep/strategies/sharding/sharded_sequential.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <ostream>

namespace lockstep {
namespace {

/// The elements of a unit under their names in the sequence.
struct ElementsOfUnit final : torch::nn::Module {
  using Module::Module;
};

/// Returns the bytes of the parameters that a unit of this element would cut. Those of units in it are cut
/// already, and other ranks may have more or less of them.
int64_t bytes_to_cut(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const auto& parameter : module.parameters())
    bytes += is_shard(parameter) ? 0 : static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

}  // namespace

ShardedSequentialImpl::ShardedSequentialImpl(const std::vector<ElementFactory>& elements,
                                             const UnitOptions& options, const UnitPolicy& policy)
    : Module("ShardedSequential") {
  Elements open;
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    open.push_back(elements[i].make());
    names.push_back(elements[i].name.empty() ? std::to_string(i) : elements[i].name);
    bytes += bytes_to_cut(*open.back().ptr());
    if (bytes < std::max<int64_t>(1, policy.min_unit_bytes) && i + 1 < elements.size()) continue;
    close_unit(options, names, std::exchange(open, {}));
    names.clear();
    bytes = 0;
  }
}

void ShardedSequentialImpl::close_unit(const UnitOptions& options, const std::vector<std::string>& names,
                                       Elements elements) {
  const auto block = std::make_shared<ElementsOfUnit>("elements");
  for (size_t i = 0; i < names.size(); ++i) block->register_module(names[i], elements[i].ptr());
  UnitOptions own = options;
  const std::string range = names.size() == 1 ? names.front() : c10::str(names.front(), " to ", names.back());
  ranges_.push_back(range);
  own.name = own.name.empty() ? range : c10::str(own.name, ".", range);
  const auto unit = std::make_shared<ShardedModule>(block, own);
  for (const auto& child : unit->named_children()) register_module(child.key(), child.value());
  units_.push_back(unit);
  elements_.push_back(std::move(elements));
}

torch::Tensor ShardedSequentialImpl::forward(const torch::Tensor& input) {
  torch::Tensor x = input;
  for (size_t i = 0; i < units_.size(); ++i) {
    x = units_[i]->call(
        [&](const torch::Tensor& in) {
          torch::nn::AnyValue value(in);
          for (auto& element : elements_[i]) value = element.any_forward(std::move(value));
          return value.get<torch::Tensor>();
        },
        x);
  }
  return x;
}

void ShardedSequentialImpl::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  for (const auto& unit : units_) unit->bind(replica);
}

void ShardedSequentialImpl::train(bool on) {
  Module::train(on);
  for (const auto& unit : units_) unit->train(on);
}

void ShardedSequentialImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  for (const auto& unit : units_) unit->follow_parameters();
}

void ShardedSequentialImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  for (const auto& unit : units_) unit->follow_parameters();
}

void ShardedSequentialImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  for (const auto& unit : units_) unit->follow_parameters();
}

std::vector<ShardedModule*> ShardedSequentialImpl::sharded_units() {
  std::vector<ShardedModule*> all;
  for (const auto& unit : units_) {
    const auto own = unit->sharded_units();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

void ShardedSequentialImpl::name_units(const std::string& name) {
  for (size_t i = 0; i < units_.size(); ++i) units_[i]->name_units(name + "." + ranges_[i]);
}

void ShardedSequentialImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ShardedSequential(" << units_.size() << " units)";
}

ShardedSequential shard_elements(const std::vector<ElementFactory>& elements, const UnitOptions& options,
                                 const UnitPolicy& policy) {
  return ShardedSequential(elements, options, policy);
}

ShardedSequential shard_elements(const torch::nn::Sequential& model, const UnitOptions& options,
                                 const UnitPolicy& policy) {
  std::vector<ElementFactory> elements;
  const auto names = model->named_children().keys();
  size_t next = 0;
  for (auto& element : *model) {
    elements.emplace_back([element] { return element; }, names[next++]);
  }
  return shard_elements(elements, options, policy);
}

}  // namespace lockstep
