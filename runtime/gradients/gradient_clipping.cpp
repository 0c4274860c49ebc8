#include "lockstep/runtime/gradients/gradient_clipping.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/sparse_gradient.h"
#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Tensors of one device, dtype and layout, and their indices in the list that they are from.
struct Group {
  Tensors tensors;
  std::vector<size_t> indices;
};

/// Groups the tensors. A GPU takes a few launches for all tensors of a group, instead of one for each tensor.
std::vector<Group> alike(const Tensors& tensors) {
  std::vector<Group> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& known) {
      const at::Tensor& first = known.tensors[0];
      return first.device() == tensor.device() && first.scalar_type() == tensor.scalar_type() &&
             first.layout() == tensor.layout();
    });
    if (group == groups.end()) group = groups.insert(groups.end(), Group());
    group->tensors.push_back(tensor);
    group->indices.push_back(i);
  }
  return groups;
}

/// Returns the tensors; of sparse ones the rows' values, in which rows that appear twice are summed.
Tensors values_of(const Tensors& gradients) {
  if (!gradients[0].is_sparse()) return gradients;
  Tensors values;
  for (const auto& gradient : gradients) values.push_back(coalesced_rows(gradient)._values());
  return values;
}

void scale_(const Tensors& gradients, const at::Tensor& scale) {
  if (!gradients[0].is_sparse()) {
    at::_foreach_mul_(gradients, scale);
  } else {
    for (at::Tensor gradient : gradients) gradient.mul_(scale);
  }
}

void check_norm(double max_norm) {
  if (!(max_norm >= 0))
    throw InvalidArgument("[clip_norm] expected a norm of 0 or more, but got " + std::to_string(max_norm));
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

/// Returns the norm of each of the `count` tensors in the groups, on `device`.
Tensors norms_of(const std::vector<Group>& groups, size_t count, at::Device device) {
  Tensors norms(count);
  for (const auto& group : groups) {
    const auto of_group = at::_foreach_norm(values_of(group.tensors), 2);
    for (size_t i = 0; i < of_group.size(); ++i) norms[group.indices[i]] = of_group[i].to(device);
  }
  return norms;
}

void scale_to(const std::vector<Group>& groups, double max_norm, const at::Tensor& norm) {
  if (std::isinf(max_norm)) return;
  const at::Tensor scale = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  for (const auto& group : groups) scale_(group.tensors, scale.to(group.tensors[0].device()));
}

}  // namespace

at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm) {
  check_norm(max_norm);
  const at::NoGradGuard no_grad;
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty()) return at::zeros({});
  const auto groups = alike(gradients);
  const at::Tensor norm =
      at::linalg_vector_norm(at::stack(norms_of(groups, gradients.size(), gradients[0].device())));
  scale_to(groups, max_norm, norm);
  return norm;
}

at::Tensor clip_divided_gradients(const DividedParameters& parameters, double max_norm,
                                  const SquareSums& sums) {
  check_norm(max_norm);
  const at::NoGradGuard no_grad;
  const at::Tensor& like = parameters.like;
  std::vector<std::vector<Group>> groups;
  // The square of a float32 norm may overflow.
  const auto squares_of = [&](const Tensors& of) {
    const Tensors gradients = gradients_of(of);
    const at::Tensor squares =
        at::zeros({1}, at::TensorOptions(widest_float(like.device())).device(like.device()));
    if (gradients.empty()) return squares;
    groups.push_back(alike(gradients));
    const Tensors norms = norms_of(groups.back(), gradients.size(), like.device());
    return squares.copy_(at::linalg_vector_norm(at::stack(norms).to(squares.scalar_type())).square());
  };
  const auto sum = [](const SquareSums::Sum& over_ranks, const at::Tensor& squares) {
    if (over_ranks) over_ranks(squares);
  };
  const at::Tensor of_slices =
      at::cat({squares_of(parameters.slices), squares_of(parameters.slices_of_cuts)});
  sum(sums.over_slices, of_slices);
  const at::Tensor of_shards = squares_of(parameters.shards);
  sum(sums.over_shards, of_shards);
  const at::Tensor squares = of_slices.narrow(0, 1, 1) + squares_of(parameters.cuts);
  sum(sums.over_cuts, squares);
  squares.add_(of_slices.narrow(0, 0, 1)).add_(of_shards).add_(squares_of(parameters.whole));
  sum(sums.over_stages, squares);
  squares_of(parameters.uncounted);  // which are scaled
  const at::Tensor norm = squares[0].sqrt().to(like.scalar_type());
  for (const auto& alike_gradients : groups) scale_to(alike_gradients, max_norm, norm);
  return norm;
}

}  // namespace lockstep
