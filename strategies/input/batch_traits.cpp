#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep::detail {

void check_is_batch(const torch::Tensor& tensor) {
  if (tensor.dim() > 0) return;
  throw NotABatch(
      "expected tensors with examples along axis 0, but got a tensor without dimensions: return a batch of "
      "shape "
      "[n, ...], such as value.unsqueeze(0) for one example");
}

}  // namespace lockstep::detail
