#include "lockstep/runtime/gradients/sharded_parameters.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/gradients/gradient_clipping.h"
#include "lockstep/runtime/gradients/state_slice.h"
#include "lockstep/runtime/graphs/capturable_step.h"

namespace lockstep {

ShardedParameters::ShardedParameters(torch::optim::Optimizer& optimizer, GradientReducer& reducer,
                                     ReplicaBackends parts, std::function<std::string(size_t)> name_of)
    : optimizer_(optimizer),
      reducer_(reducer),
      parts_(std::move(parts)),
      flat_(reducer.parameters(), std::move(name_of)),
      other_(optimizer.param_groups().size()) {
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group)
    group_of_.insert(group_of_.end(), optimizer.param_groups()[group].params().size(), group);
  flat_.adopt(reducer_.buckets());
  add_slices();
  divide_states();
}

void ShardedParameters::prepare() {
  flat_.adopt(reducer_.buckets());  // first, so that the reducer finds the parameters in their places
  reducer_.prepare();
  if (num_buckets_ < reducer_.buckets().size()) {
    flat_.adopt(reducer_.buckets());
    add_slices();
  }
  divide_states();
}

void ShardedParameters::add_slices() {
  const GradientBuckets& buckets = reducer_.buckets();
  for (; num_buckets_ < buckets.size(); ++num_buckets_) {
    if (!buckets.is_in_parts(num_buckets_)) continue;
    const int64_t length = buckets.part_numel(num_buckets_);
    const int64_t begin = buckets.parts().own * length;
    for (const auto& slice : slices_of({num_buckets_, begin, length}, buckets.slots(num_buckets_))) {
      slices_.push_back(slice);
      tensors_.push_back(flat_.flat(num_buckets_).narrow(0, slice.position, slice.length));
      gradients_.push_back(buckets.own_part(num_buckets_).narrow(0, slice.position - begin, slice.length));
    }
  }
  // In the order of the parameters, as the optimizer has them.
  std::vector<std::pair<size_t, at::Tensor>> stepped;
  for (size_t i = 0; i < slices_.size(); ++i) stepped.emplace_back(slices_[i].parameter, tensors_[i]);
  for (const size_t i : shards()) stepped.emplace_back(i, reducer_.parameters()[i]);
  std::stable_sort(stepped.begin(), stepped.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& group : other_) group.clear();
  for (const auto& [parameter, tensor] : stepped) other_[group_of_[parameter]].push_back(tensor);
}

std::vector<size_t> ShardedParameters::shards() const {
  const GradientBuckets& buckets = reducer_.buckets();
  std::vector<size_t> shards;
  for (size_t i = 0; i < buckets.num_parameters(); ++i)
    if (buckets.has_slot(i) && !buckets.is_in_parts(buckets.bucket_of(i))) shards.push_back(i);
  return shards;
}

/// Divides the states that the optimizer has for whole parameters: Adagrad makes them in its constructor, and
/// others come from files.
void ShardedParameters::divide_states() {
  auto& states = optimizer_.state();
  const auto& parameters = reducer_.parameters();
  const auto is_whole = [&](size_t i) {
    const GradientBuckets& buckets = reducer_.buckets();
    return buckets.has_slot(i) && buckets.is_in_parts(buckets.bucket_of(i)) &&
           states.find(parameters[i].unsafeGetTensorImpl()) != states.end();
  };
  for (size_t i = 0; i < slices_.size(); ++i) {
    const at::Tensor& parameter = parameters[slices_[i].parameter];
    if (!is_whole(slices_[i].parameter)) continue;
    set_state(i, slice_of_state(*states.at(parameter.unsafeGetTensorImpl()), parameter, slices_[i]));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_whole(i)) states.erase(parameters[i].unsafeGetTensorImpl());
  }
}

torch::optim::OptimizerParamState* ShardedParameters::state(size_t slice) const {
  const auto& states = optimizer_.state();
  const auto found = states.find(tensors_[slice].unsafeGetTensorImpl());
  return found == states.end() ? nullptr : found->second.get();
}

void ShardedParameters::set_state(size_t slice, std::unique_ptr<torch::optim::OptimizerParamState> state) {
  auto& states = optimizer_.state();
  void* key = tensors_[slice].unsafeGetTensorImpl();
  if (state) {
    states[key] = std::move(state);
  } else {
    states.erase(key);
  }
}

void ShardedParameters::swap() {
  auto& groups = optimizer_.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) std::swap(groups[group].params(), other_[group]);
}

void ShardedParameters::describe(Fingerprint& fingerprint) {
  const auto* step = dynamic_cast<const CapturableStep*>(&optimizer_);
  if (step == nullptr) return;
  struct Swapped {
    explicit Swapped(ShardedParameters& of) : parameters(of) { parameters.swap(); }
    ~Swapped() { parameters.swap(); }
    ShardedParameters& parameters;
  };
  const Swapped swapped(*this);
  step->describe_step(fingerprint);
}

ShardedParameters::Step::Step(ShardedParameters& parameters) : parameters_(parameters) {
  parameters_.flat_.adopt(parameters_.reducer_.buckets());  // a function may have replaced memory in this run
  parameters_.reducer_.take_changes();
  parameters_.divide_states();
  for (size_t i = 0; i < parameters_.slices_.size(); ++i) {
    if (parameters_.reducer_.has_sum(parameters_.slices_[i].parameter))
      parameters_.tensors_[i].mutable_grad() = parameters_.gradients_[i];
  }
  parameters_.swap();
}

ShardedParameters::Step::~Step() {
  parameters_.swap();
  for (auto& tensor : parameters_.tensors_) tensor.mutable_grad().reset();
}

ShardedMemory ShardedParameters::memory() const {
  return {.parameters = flat_.bytes(),
          .buckets = reducer_.buckets().bytes(),
          .peak_buckets = reducer_.statistics().peak_bucket_bytes,
          .sums = reducer_.buckets().bytes_apart()};
}

}  // namespace lockstep
