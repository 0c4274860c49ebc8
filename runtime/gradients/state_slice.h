#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>

#include "lockstep/runtime/gradients/slice_layout.h"

namespace lockstep {

/// Returns `count` elements of a dense tensor from `begin` on, in its memory's order, as a view.
at::Tensor elements_of(const at::Tensor& tensor, int64_t begin, int64_t count);

/// How a dense tensor lies in memory.
struct DenseLayout {
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
};

/// Returns a copy of `count` of the values from `begin` on, in the order in which they lie in a tensor of
/// this layout.
at::Tensor slice_of_values(const at::Tensor& values, const DenseLayout& layout, int64_t begin, int64_t count);

/// Returns an optimizer's state for a slice of `parameter`, cut from its state for all of it: tensors of the
/// parameter's shape are copied in part, in the order of the parameter's memory, and all else whole. Works
/// for every state that can be cloned and serialized. Throws InvalidArgument for others.
std::unique_ptr<torch::optim::OptimizerParamState> slice_of_state(
    const torch::optim::OptimizerParamState& state, const at::Tensor& parameter, const ParameterSlice& slice);

/// Returns a copy of an optimizer's state whose tensors are on `device`. Takes and throws what
/// slice_of_state() does.
std::unique_ptr<torch::optim::OptimizerParamState> state_on(const torch::optim::OptimizerParamState& state,
                                                            c10::Device device);

}  // namespace lockstep
