#include "lockstep/runtime/gradients/gradient_hooks.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace lockstep {

GradientHooks::~GradientHooks() {
  for (size_t i = 0; i < accumulators_.size(); ++i) {
    if (accumulators_[i]) accumulators_[i]->del_post_hook(keys_[i]);
  }
}

void GradientHooks::install(size_t index, const at::Tensor& parameter,
                            std::function<Gradients(const Gradients&, const Gradients&)> hook) {
  accumulators_[index] = torch::autograd::impl::grad_accumulator(parameter);
  keys_[index] = accumulators_[index]->add_post_hook(
      std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook)));
}

bool GradientHooks::are_in_place(const std::vector<at::Tensor>& parameters) const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (accumulators_[i] &&
        torch::autograd::impl::try_get_grad_accumulator(parameters[i]) != accumulators_[i])
      return false;
  }
  return true;
}

}  // namespace lockstep
