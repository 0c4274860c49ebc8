#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// Gradients of what a function was given.
struct FunctionGradients {
  torch::Tensor input;                    ///< undefined if there is none
  std::vector<torch::Tensor> parameters;  ///< in their order, undefined for those that were not used
};

/// Runs backward through a function, without adding to grad(). Frees the graph. `input` may be undefined.
FunctionGradients run_backward(const torch::Tensor& result, const torch::Tensor& input,
                               const std::vector<torch::Tensor>& parameters, const torch::Tensor& gradient);

/// The two halves of the backward of a function: the gradient of its input, and then those of parameters.
/// Neither computes anything twice: the first half keeps the gradients of the results from which parameters'
/// gradients are computed.
///
/// Example:
///
///     SplitBackward backward(y, x, parameters);
///     auto of_input = backward.inputs(gradient_of_y);  // others may wait for this
///     auto of_parameters = backward.weights();
class SplitBackward {
 public:
  /// `result` has a history. `input` is a leaf with a gradient, or undefined: the first half then does
  /// nothing.
  SplitBackward(const torch::Tensor& result, const torch::Tensor& input,
                const std::vector<torch::Tensor>& parameters);

  /// Whether there are two halves. If not, inputs() does all the work of backward: if a parameter is used in
  /// several places, and if nodes of the graph cannot be run twice (those of sharded units and of
  /// recomputation).
  bool is_split() const { return is_split_; }

  /// Returns the gradient of the input; undefined without one, and if the result does not depend on it. If
  /// there are no two halves, it frees the graph and does not keep the input.
  torch::Tensor inputs(const torch::Tensor& gradient);
  /// Returns the gradients of the parameters in their order, undefined for those that were not used. Frees
  /// the graph. Call it once, after inputs().
  std::vector<torch::Tensor> weights();

 private:
  /// A node through which the input's gradient goes, and that uses parameters.
  struct Branch {
    std::shared_ptr<torch::autograd::Node> node;
    std::vector<size_t> parameters;
    std::vector<torch::Tensor> gradients;  // of what the node computed
  };

  void find_branches();

  torch::Tensor result_;
  torch::Tensor input_;
  std::vector<torch::Tensor> parameters_;
  bool is_split_ = true;
  std::vector<Branch> branches_;
  std::vector<torch::autograd::Node*> passed_;  // to the input, without parameters; of the result's graph
  std::vector<torch::Tensor> gradients_;        // of the parameters, if they are there already
  torch::Tensor gradient_of_result_;            // if there is no input
};

}  // namespace lockstep
