#include "lockstep/models/internal/relu6.h"

#include <torch/csrc/autograd/custom_function.h>

namespace lockstep {
namespace {

class Relu6Function : public torch::autograd::Function<Relu6Function> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor input) {
    torch::hardtanh_(input, 0, 6);
    context->mark_dirty({input});
    context->save_for_backward({input});
    return input;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    // The result is at a bound exactly where the input is at or beyond it, so either gives the same gradient.
    const auto result = context->get_saved_variables()[0];
    return {torch::hardtanh_backward(gradients[0], result, 0, 6)};
  }
};

}  // namespace

torch::Tensor relu6_in_place(torch::Tensor input) {
  if (!torch::GradMode::is_enabled() || !input.requires_grad()) return torch::hardtanh_(input, 0, 6);
  return Relu6Function::apply(std::move(input));
}

}  // namespace lockstep
