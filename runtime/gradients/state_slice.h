#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "lockstep/runtime/gradients/slice_layout.h"

namespace lockstep {

/// Returns `count` elements of a dense tensor from `begin` on, in its memory's order, as a view.
at::Tensor elements_of(const at::Tensor& tensor, int64_t begin, int64_t count);

/// Returns an optimizer's state for a slice of `parameter`, cut from its state for all of it: tensors of the
/// parameter's shape are copied in part, in the order of the parameter's memory, and all else whole. Works
/// for every state that can be cloned and serialized. Throws InvalidArgument for others.
std::unique_ptr<torch::optim::OptimizerParamState> slice_of_state(
    const torch::optim::OptimizerParamState& state, const at::Tensor& parameter, const ParameterSlice& slice);

/// The state of one slice of a parameter.
struct StatePart {
  ParameterSlice slice;
  const torch::optim::OptimizerParamState* state = nullptr;
};

/// Returns the state for all of `parameter` from those of its slices, in any order: the inverse of
/// slice_of_state(). Values that are not cut are those of the first part. Throws InvalidArgument unless the
/// slices hold each element once, and for states that cannot be cloned and serialized.
std::unique_ptr<torch::optim::OptimizerParamState> join_states(const std::vector<StatePart>& parts,
                                                               const at::Tensor& parameter);

}  // namespace lockstep
