#include "lockstep/runtime/gradients/state_slice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <sstream>
#include <typeinfo>
#include <utility>

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

at::Tensor slice_of_values(const at::Tensor& values, const at::Tensor& parameter,
                           const ParameterSlice& slice) {
  const at::Tensor ordered =
      at::empty_strided(parameter.sizes(), parameter.strides(), values.options()).copy_(values);
  return elements_of(ordered, slice.offset, slice.length).clone();
}

[[noreturn]] void refuse_state(const torch::optim::OptimizerParamState& state, const c10::Error& error) {
  throw InvalidArgument(
      c10::str("[sharding] expected an optimizer state that can be cloned and serialized, "
               "to divide it among replicas, but got ",
               c10::demangle(typeid(state).name()), ": ", error.what_without_backtrace()));
}

bool is_cut(const c10::IValue& value, const ParameterSlice& slice) {
  return value.isTensor() && value.toTensor().dim() == 1 && value.toTensor().numel() == slice.length;
}

void check_cover(const std::vector<StatePart>& parts, int64_t numel) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  ranges.reserve(parts.size());
  for (const auto& part : parts) ranges.emplace_back(part.slice.offset, part.slice.length);
  std::sort(ranges.begin(), ranges.end());
  int64_t end = 0;
  for (const auto& [offset, length] : ranges) {
    if (offset != end) break;
    end += length;
  }
  if (end == numel && !parts.empty()) return;
  throw InvalidArgument(c10::str("[sharding] expected states of slices that hold each of ", numel,
                                 " elements once, but element ", end, " is missing or there twice"));
}

}  // namespace

at::Tensor elements_of(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.as_strided({count}, {1}, tensor.storage_offset() + begin);
}

std::unique_ptr<torch::optim::OptimizerParamState> slice_of_state(
    const torch::optim::OptimizerParamState& state, const at::Tensor& parameter,
    const ParameterSlice& slice) try {
  const at::NoGradGuard no_grad;
  // There is no other way to list the tensors of a state.
  torch::serialize::OutputArchive whole;
  state.serialize(whole);
  auto read = reopened(whole);
  torch::serialize::OutputArchive part;
  for (const auto& key : read.keys()) {
    c10::IValue value;
    read.read(key, value);
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().sizes() == parameter.sizes())
      value = slice_of_values(value.toTensor(), parameter, slice);
    part.write(key, value);
  }
  auto sliced = state.clone();
  auto archive = reopened(part);
  sliced->serialize(archive);
  return sliced;
} catch (const c10::Error& error) {
  refuse_state(state, error);
}

std::unique_ptr<torch::optim::OptimizerParamState> join_states(const std::vector<StatePart>& parts,
                                                               const at::Tensor& parameter) try {
  check_cover(parts, parameter.numel());
  const at::NoGradGuard no_grad;
  torch::serialize::OutputArchive joined;
  std::vector<torch::serialize::InputArchive> archives;
  for (const auto& part : parts) {
    torch::serialize::OutputArchive written;
    part.state->serialize(written);
    archives.push_back(reopened(written));
  }
  for (const auto& key : archives[0].keys()) {
    c10::IValue value;
    archives[0].read(key, value);
    if (is_cut(value, parts[0].slice)) {
      const at::Tensor whole =
          at::empty_strided(parameter.sizes(), parameter.strides(), value.toTensor().options());
      for (size_t i = 0; i < parts.size(); ++i) {
        c10::IValue own;
        archives[i].read(key, own);
        elements_of(whole, parts[i].slice.offset, parts[i].slice.length).copy_(own.toTensor());
      }
      value = whole;
    }
    joined.write(key, value);
  }
  auto state = parts[0].state->clone();
  auto archive = reopened(joined);
  state->serialize(archive);
  return state;
} catch (const c10::Error& error) {
  refuse_state(*parts[0].state, error);
}

}  // namespace lockstep
