// The fake GPU's sparse tensors: row numbers and values, which are dense tensors on the fake GPU.
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

namespace lockstep::fake_gpu {
namespace {

/// Handles one sparse dimension, as in gradients of tables.
at::Tensor coalesce(const at::Tensor& sparse) {
  const auto values = sparse._values();
  const auto [rows, places, counts] =
      at::_unique2(sparse._indices().select(0, 0), /*sorted=*/true, /*return_inverse=*/true);
  auto sizes = values.sizes().vec();
  sizes[0] = rows.numel();
  const auto sums = at::zeros(sizes, values.options()).index_add_(0, places, values);
  return at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), sums, sparse.sizes(),
                                       values.options().layout(at::kSparse))
      ._coalesced_(true);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) {
  library.impl("_sparse_coo_tensor_with_dims_and_tensors",
               &at::native::new_with_dims_and_tensor_sparse_symint);
  library.impl("_indices", &at::native::_indices_sparse);
  library.impl("_values", &at::native::_values_sparse);
  library.impl("indices", &at::native::indices_sparse);
  library.impl("values", &at::native::values_sparse);
  library.impl("_nnz", &at::native::_nnz_sparse);
  library.impl("is_coalesced", &at::native::is_coalesced_sparse);
  library.impl("_coalesced_", &at::native::_coalesced_sparse_);
  library.impl("sparse_dim", &at::native::sparse_dim_sparse);
  library.impl("dense_dim", &at::native::dense_dim_sparse);
  library.impl("_coalesce", &coalesce);
}

}  // namespace lockstep::fake_gpu
