#include "lockstep/models/batch_norm.h"

#include <stdexcept>
#include <string>

namespace lockstep {

torch::Tensor BatchNormImpl::forward(const torch::Tensor& input) {
  if (is_training() && input.numel() == 0) {
    // Calls the operator, which leaves the running statistics unchanged here; the module's forward would
    // count a batch.
    return torch::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/true,
                             options.momentum().value_or(0.0), options.eps(), /*cudnn_enabled=*/false);
  }
  return BatchNormImplBase::forward(input);
}

void BatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() != 4) {
    throw std::invalid_argument(
        "[BatchNorm] expected a batch of images, of 4 dimensions (N, C, H, W), but got " +
        std::to_string(input.dim()) +
        " dimensions; for other batches, use torch::nn::BatchNorm1d, torch::nn::BatchNorm3d or "
        "SyncBatchNorm");
  }
}

}  // namespace lockstep
