#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/nn/internal/forward_conditions.h"

namespace lockstep {

/// A forward over tensors alone: what recompute() calls again.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Returns new leaves with the inputs' values, one for each, so that what a function records about them ends
/// there.
std::vector<at::Tensor> as_leaves(const std::vector<at::Tensor>& inputs);

/// An input of a function that will be called again in backward.
struct KeptInput {
  at::Tensor value;  ///< without history
  bool requires_grad;
  int64_t version;
};

/// The shape of a function's result, which the second call must give again.
struct ResultShape {
  explicit ResultShape(const at::Tensor& tensor);
  bool operator==(const ResultShape& other) const = default;
  /// For errors, such as "Float [2, 3] on cpu with a gradient".
  std::string describe() const;

  bool is_defined = false;
  bool requires_grad = false;
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device{c10::DeviceType::CPU};
};

/// Stands in the graph for everything that a function records. Backward calls the function again, runs
/// backward through what that records, and passes the gradients of the inputs, of the parameters and of all
/// other tensors that the function used on to the graph around it. So a parameter that several functions use
/// gets the sum of their gradients, at once and in the usual way: hooks run, torch::autograd::grad() works.
class RecomputeBackward final : public torch::autograd::Node {
 public:
  struct Kept {
    TensorFunction function;
    std::vector<KeptInput> inputs;
    ForwardConditions conditions;
    /// Edges to what the function used besides its inputs.
    torch::autograd::edge_list exits;
    /// For each of these, the version of the leaf, 0 for others.
    std::vector<int64_t> exit_versions;
    std::vector<ResultShape> results;
  };

  explicit RecomputeBackward(Kept kept) : kept_(std::make_shared<const Kept>(std::move(kept))) {}

  std::string name() const override { return "RecomputeBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;

 private:
  std::shared_ptr<const Kept> kept_;  // null once released
};

/// Returns the version of the leaf that an edge leads to, 0 if it leads to no leaf.
int64_t version_of_leaf(const torch::autograd::Edge& edge);
/// Returns how often a tensor was changed in place.
int64_t version_of(const at::Tensor& tensor);

}  // namespace lockstep
