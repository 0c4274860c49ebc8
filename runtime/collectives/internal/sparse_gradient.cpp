#include "lockstep/runtime/collectives/internal/sparse_gradient.h"

#include <torch/types.h>

#include <algorithm>
#include <functional>

#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {
namespace {

bool strictly_ascends(const at::Tensor& rows) {
  const auto* begin = rows.const_data_ptr<int64_t>();
  const auto* end = begin + rows.numel();
  return std::adjacent_find(begin, end, std::greater_equal<>()) == end;
}

}  // namespace

at::Tensor coalesced_rows(const at::Tensor& gradient) {
  if (gradient.is_coalesced() || gradient.sparse_dim() != 1 || !gradient.is_cpu()) return gradient.coalesce();
  const auto indices = gradient._indices();
  if (!indices.is_contiguous() || !strictly_ascends(indices)) return gradient.coalesce();
  const auto values = gradient._values();
  return at::_sparse_coo_tensor_unsafe(indices, values, gradient.sizes(),
                                       values.options().layout(at::kSparse))
      ._coalesced_(true);
}

at::Tensor sum_sparse(const ReplicaBackends& channel, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = coalesced_rows(value);
  const at::Tensor indices = gather_rows(channel, own.indices().t().contiguous());
  const at::Tensor values = gather_rows(channel, own.values().contiguous());
  return at::sparse_coo_tensor(indices.t(), values, own.sizes()).coalesce();
}

at::Tensor sum_sparse_gradient(const ReplicaBackends& channel, const at::Tensor& parameter,
                               const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  // Row-sparse gradients, as embeddings make them, have one sparse dimension.
  at::Tensor local = gradient;
  if (!local.defined()) {
    std::vector<int64_t> value_sizes = parameter.sizes().vec();
    value_sizes[0] = 0;
    local = at::sparse_coo_tensor(
        at::empty({1, 0}, parameter.options().dtype(at::kLong).requires_grad(false)),
        at::empty(value_sizes, parameter.options().requires_grad(false)), parameter.sizes());
  }
  return sum_sparse(channel, local);
}

}  // namespace lockstep
