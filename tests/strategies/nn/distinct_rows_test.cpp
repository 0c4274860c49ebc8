#include "lockstep/strategies/nn/internal/distinct_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace lockstep {
namespace {

/// Compares the rows with a std::set, and checks that each place refers to the row that was there.
void expect_distinct(const at::Tensor& rows) {
  const auto found = distinct_rows(rows);
  const auto flat = rows.flatten();
  const auto* numbers = flat.const_data_ptr<int64_t>();
  const std::set<int64_t> expected(numbers, numbers + flat.numel());
  const auto* distinct = found.rows.const_data_ptr<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(distinct, distinct + found.rows.numel()),
            std::vector<int64_t>(expected.begin(), expected.end()));
  ASSERT_EQ(found.indices.sizes(), rows.sizes());
  EXPECT_TRUE(found.rows.index_select(0, found.indices.flatten()).equal(flat));
}

TEST(DistinctRows, AscendAndAreWhereTheirNumbersWere) {
  std::mt19937_64 random(3);
  for (const int64_t largest : {int64_t{1}, int64_t{2}, int64_t{4095}, int64_t{4096}, int64_t{1} << 25,
                                (int64_t{1} << 40) + 1, std::numeric_limits<int64_t>::max()}) {
    auto rows = at::empty({50, 40}, at::kLong);
    std::uniform_int_distribution<int64_t> number(0, largest);
    for (int64_t i = 0; i < rows.numel(); ++i) rows.mutable_data_ptr<int64_t>()[i] = number(random);
    expect_distinct(rows);
    expect_distinct(rows.t());
  }
}

TEST(DistinctRows, OfNoneOneOrTheSame) {
  expect_distinct(at::empty({0}, at::kLong));
  expect_distinct(at::empty({3, 0}, at::kLong));
  expect_distinct(at::zeros({5}, at::kLong));
  expect_distinct(at::tensor({int64_t{7}}, at::kLong));
}

}  // namespace
}  // namespace lockstep
