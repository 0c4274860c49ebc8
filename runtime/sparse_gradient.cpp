#include "lockstep/runtime/sparse_gradient.h"

#include <torch/types.h>

#include "lockstep/runtime/collectives.h"

namespace lockstep {

at::Tensor sum_sparse_gradient(const ReplicaChannel& channel, const at::Tensor& parameter,
                               const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  // Row-sparse gradients, as an embedding makes them: one sparse dimension.
  at::Tensor local = gradient;
  if (!local.defined()) {
    std::vector<int64_t> value_sizes = parameter.sizes().vec();
    value_sizes[0] = 0;
    local = at::sparse_coo_tensor(
        at::empty({1, 0}, parameter.options().dtype(at::kLong).requires_grad(false)),
        at::empty(value_sizes, parameter.options().requires_grad(false)), parameter.sizes());
  }
  local = local.coalesce();
  const at::Tensor indices = gather_rows(channel, local.indices().t().contiguous());
  const at::Tensor values = gather_rows(channel, local.values().contiguous());
  return at::sparse_coo_tensor(indices.t(), values, parameter.sizes()).coalesce();
}

}  // namespace lockstep
