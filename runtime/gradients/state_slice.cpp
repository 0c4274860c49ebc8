#include "lockstep/runtime/gradients/state_slice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <functional>
#include <sstream>
#include <typeinfo>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

torch::serialize::InputArchive reopened(torch::serialize::OutputArchive& written) {
  std::stringstream file;
  written.save_to(file);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  return archive;
}

[[noreturn]] void refuse_state(const torch::optim::OptimizerParamState& state, const c10::Error& error) {
  throw InvalidArgument(
      c10::str("[sharding] expected an optimizer state that can be cloned and serialized, "
               "to divide it among replicas, but got ",
               c10::demangle(typeid(state).name()), ": ", error.what_without_backtrace()));
}

/// Returns a copy of a state with other tensors.
std::unique_ptr<torch::optim::OptimizerParamState> changed_state(
    const torch::optim::OptimizerParamState& state,
    const std::function<at::Tensor(const at::Tensor&)>& change) try {
  const at::NoGradGuard no_grad;
  // There is no other way to list the tensors of a state.
  torch::serialize::OutputArchive whole;
  state.serialize(whole);
  auto read = reopened(whole);
  torch::serialize::OutputArchive changed;
  for (const auto& key : read.keys()) {
    c10::IValue value;
    read.read(key, value);
    if (value.isTensor() && value.toTensor().defined()) value = change(value.toTensor());
    changed.write(key, value);
  }
  auto result = state.clone();
  auto archive = reopened(changed);
  result->serialize(archive);
  return result;
} catch (const c10::Error& error) {
  refuse_state(state, error);
}

}  // namespace

at::Tensor elements_of(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.as_strided({count}, {1}, tensor.storage_offset() + begin);
}

at::Tensor slice_of_values(const at::Tensor& values, const DenseLayout& layout, int64_t begin,
                           int64_t count) {
  const at::Tensor ordered = at::empty_strided(layout.sizes, layout.strides, values.options()).copy_(values);
  return elements_of(ordered, begin, count).clone();
}

std::unique_ptr<torch::optim::OptimizerParamState> slice_of_state(
    const torch::optim::OptimizerParamState& state, const at::Tensor& parameter,
    const ParameterSlice& slice) {
  return changed_state(state, [&](const at::Tensor& value) {
    if (value.sizes() != parameter.sizes()) return value;
    return slice_of_values(value, {parameter.sizes(), parameter.strides()}, slice.offset, slice.length);
  });
}

std::unique_ptr<torch::optim::OptimizerParamState> state_on(const torch::optim::OptimizerParamState& state,
                                                            c10::Device device) {
  return changed_state(state, [&](const at::Tensor& value) { return value.to(device); });
}

}  // namespace lockstep
