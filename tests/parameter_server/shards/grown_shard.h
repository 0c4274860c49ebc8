#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"

// A small table that grows, for tests.

namespace lockstep::testing {

inline constexpr int64_t kGrownColumns = 3;
inline constexpr int kGrownBits = 20;
inline constexpr int64_t kGrownIds = 60;
inline const InitialValues kGrownValues = NormalValues{.std = 0.5, .seed = 3};

inline at::Tensor grown_like() {
  return at::empty({0, kGrownColumns}, at::kDouble);
}

inline at::Tensor initial_of_id(int64_t id) {
  return make_values(kGrownValues, {id, id + 1}, grown_like());
}

inline ParameterShard grown_shard(const UpdateRule& rule, const RowFilter& filter = {}, int64_t max_bytes = 0,
                                  const RowRange& rows = {0, int64_t{1} << kGrownBits}) {
  return {"t", grown_like(), rule, FilteredRows{filter, kGrownValues, rows},
          RowGrowth{max_bytes, kGrownBits}};
}

inline std::vector<UpdateRule> rules() {
  return {SgdRule{}, AdagradRule{.initial_accumulator_value = 0.1}, AdamRule{}, AdamRule{.amsgrad = true}};
}

/// A batch of ids with a gradient each.
struct IdBatch {
  std::map<int64_t, at::Tensor> gradients;

  /// Row numbers and gradients for a table that grows, in order.
  std::pair<at::Tensor, at::Tensor> as_rows(const RowRange& range = {0, int64_t{1} << kGrownBits}) const {
    std::map<int64_t, at::Tensor> by_row;
    for (const auto& [id, gradient] : gradients) {
      const int64_t row = scattered_row(id, kGrownBits);
      if (row >= range.begin && row < range.end) by_row[row - range.begin] = gradient;
    }
    std::vector<int64_t> rows;
    std::vector<at::Tensor> values{grown_like()};
    for (const auto& [row, gradient] : by_row) {
      rows.push_back(row);
      values.push_back(gradient);
    }
    return {at::tensor(rows, at::kLong), at::cat(values)};
  }
};

/// Small ids are frequent.
inline IdBatch random_batch(std::mt19937_64& random) {
  IdBatch batch;
  for (uint64_t i = random() % 12; i > 0; --i) {
    const auto id = static_cast<int64_t>(random() % (1 + random() % kGrownIds));
    batch.gradients[id] = at::randn({1, kGrownColumns}, at::kDouble);
  }
  return batch;
}

inline at::Tensor row_of_id(const ParameterShard& shard, int64_t id, const RowRange& range = {0, 0}) {
  return shard.pull_rows(at::full({1}, scattered_row(id, kGrownBits) - range.begin, at::kLong)).values;
}

inline void push_batch(ParameterShard& shard, const IdBatch& batch, uint64_t closure,
                       const RowRange& range = {0, int64_t{1} << kGrownBits}) {
  const auto [rows, gradients] = batch.as_rows(range);
  ASSERT_EQ(shard.push_rows(rows, gradients, {.id = {closure, 0}, .lr = 0.1}).outcome, PushOutcome::kApplied);
}

}  // namespace lockstep::testing
