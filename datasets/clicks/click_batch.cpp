#include "lockstep/datasets/clicks/click_batch.h"

#include <ATen/ops/empty.h>

#include <cstdint>

namespace lockstep {

ClickBatch click_batch(const std::vector<ClickRow>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  auto numbers = at::empty({count, kClickNumbers}, at::kFloat);
  auto ids = at::empty({count, kClickCategories}, at::kLong);
  auto labels = at::empty({count}, at::kFloat);
  float* number = numbers.mutable_data_ptr<float>();
  int64_t* id = ids.mutable_data_ptr<int64_t>();
  float* label = labels.mutable_data_ptr<float>();
  for (const auto& row : rows) {
    *label++ = row.is_click ? 1.F : 0.F;
    for (const auto& given : row.numbers) *number++ = click_feature(given);
    for (int column = 0; column < kClickCategories; ++column)
      *id++ = click_id(column, row.categories[static_cast<size_t>(column)]);
  }
  return {{std::move(numbers), std::move(ids)}, std::move(labels)};
}

}  // namespace lockstep
