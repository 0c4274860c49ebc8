#include "lockstep/parameter_server/shards/row_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "lockstep/parameter_server/shards/row_kernel_set.h"

namespace lockstep {
namespace {

constexpr int64_t kMatrixRows = 40;

template <typename T>
struct Matrices {
  explicit Matrices(int64_t columns) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (auto* matrix : {&values, &first, &second, &largest, &gradients}) {
      matrix->resize(static_cast<size_t>(kMatrixRows * columns));
      for (auto& value : *matrix) value = static_cast<T>(normal(random));
    }
    for (auto* squares : {&second, &largest})
      for (auto& value : *squares) value = std::abs(value);
    for (int64_t row = 0; row < kMatrixRows; row += 1 + static_cast<int64_t>(random() % 3))
      rows.push_back(row);
  }
  std::vector<T> values, first, second, largest, gradients;
  std::vector<int64_t> rows;
};

/// The results of all kernels, one after another.
template <typename T>
Matrices<T> stepped_by(const RowKernels<T>& kernels, int64_t columns) {
  Matrices<T> all(columns);
  const RowGradients<T> batch{all.rows, columns, all.gradients.data()};
  kernels.by_sgd(all.values.data(), batch, static_cast<T>(0.1));
  kernels.by_adagrad(all.values.data(), all.second.data(), batch, static_cast<T>(0.1), static_cast<T>(1e-3));
  for (T* largest : {static_cast<T*>(nullptr), all.largest.data()})
    kernels.by_adam(all.values.data(), {all.first.data(), all.second.data(), largest}, batch, AdamRule{}, 0.1,
                    3);
  std::vector<T> copies(all.rows.size() * static_cast<size_t>(columns));
  kernels.copy(all.values.data(), all.rows, columns, copies.data());
  all.gradients = copies;
  const std::vector<int64_t> from(all.rows.rbegin(), all.rows.rend());
  kernels.add(all.values.data(), all.rows, all.first.data(), from, columns);
  return all;
}

template <typename T>
void expect_the_same_bits(const RowKernels<T>& one, const RowKernels<T>& other) {
  for (const int64_t columns : {1, 3, 8, 16, 17, 64}) {
    const auto by_one = stepped_by(one, columns);
    const auto by_other = stepped_by(other, columns);
    EXPECT_EQ(by_one.values, by_other.values) << columns;
    EXPECT_EQ(by_one.first, by_other.first) << columns;
    EXPECT_EQ(by_one.second, by_other.second) << columns;
    EXPECT_EQ(by_one.largest, by_other.largest) << columns;
    EXPECT_EQ(by_one.gradients, by_other.gradients) << columns;
    EXPECT_NE(by_one.values, Matrices<T>(columns).values) << columns;
  }
}

TEST(RowKernels, AddRowsToThoseNamedHoweverOftenTheyAre) {
  constexpr int64_t kColumns = 3;
  const std::vector<int64_t> to{2, 0, 2, 2, 1}, from{0, 3, 1, 0, 2};
  std::vector<double> sums(3 * kColumns, 0.5), values;
  for (int i = 0; i < 4 * kColumns; ++i) values.push_back(i * i);
  auto expected = sums;
  for (size_t i = 0; i < to.size(); ++i)
    for (int64_t column = 0; column < kColumns; ++column)
      expected[static_cast<size_t>(to[i] * kColumns + column)] +=
          values[static_cast<size_t>(from[i] * kColumns + column)];
  add_rows(sums.data(), to, values.data(), from, kColumns);
  EXPECT_EQ(sums, expected);
}

TEST(RowKernels, GiveTheSameBitsOnEveryKindOfProcessor) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
#endif
  if (avx2_row_kernels() == nullptr) GTEST_SKIP() << "there is one kind of kernels for this architecture";
  expect_the_same_bits(baseline_row_kernels()->of_float, avx2_row_kernels()->of_float);
  expect_the_same_bits(baseline_row_kernels()->of_double, avx2_row_kernels()->of_double);
}

}  // namespace
}  // namespace lockstep
