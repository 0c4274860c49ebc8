#pragma once

#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>

namespace lockstep {

inline constexpr int64_t kTableRows = 11;
inline constexpr int64_t kTableColumns = 3;

/// Makes the same table in every call.
inline torch::Tensor make_table(torch::Dtype dtype) {
  auto generator = at::detail::createCPUGenerator(1);
  return torch::randn({kTableRows, kTableColumns}, generator, torch::kFloat64).to(dtype).requires_grad_();
}

/// A gradient of some rows of the table, different ones in each step; one of them occurs twice.
inline torch::Tensor sparse_gradient(torch::Dtype dtype, int step) {
  auto generator = at::detail::createCPUGenerator(100 + static_cast<uint64_t>(step));
  auto rows = torch::randint(0, kTableRows, {5}, generator, torch::kLong);
  rows = torch::cat({rows, rows.narrow(0, 0, 1)});
  const auto values = torch::randn({6, kTableColumns}, generator, torch::kFloat64).to(dtype);
  return torch::sparse_coo_tensor(rows.unsqueeze(0), values, {kTableRows, kTableColumns});
}

}  // namespace lockstep
