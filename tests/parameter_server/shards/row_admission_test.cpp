#include "lockstep/parameter_server/shards/row_admission.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr int64_t kFilteredRows = 9;
constexpr int64_t kFirstRow = 30;  // of the table
constexpr int64_t kFilteredColumns = 2;

FilteredRows filtered(const RowFilter& filter) {
  return {filter, NormalValues{.std = 0.5, .seed = 3}, {kFirstRow, kFirstRow + kFilteredRows}};
}

at::Tensor like() {
  return at::empty({0, kFilteredColumns}, at::kDouble);
}

at::Tensor initial_rows() {
  return make_values(filtered({}).initial, filtered({}).rows, like());
}

TEST(RowAdmission, CountsUpdatesUntilARowIsFrequent) {
  RowAdmission admission(filtered({.min_frequency = 3}));
  const std::vector<int64_t> first{1, 4};
  const std::vector<int64_t> more{1, 5};
  EXPECT_EQ(admission.note(first, 1).admitted.numel(), 0);
  EXPECT_EQ(admission.note(more, 2).admitted.numel(), 0);
  const auto third = admission.note(first, 3);
  ASSERT_TRUE(third.admitted.defined());
  EXPECT_TRUE(third.admitted.equal(at::zeros({1}, at::kLong)));  // index 0: row 1
  admission.note(first, 4);
  EXPECT_FALSE(admission.note(first, 5).admitted.defined());  // both are admitted already
  EXPECT_FALSE(admission.is_expired(5, 1'000'000));
}

TEST(RowAdmission, ARowThatIsNotUpdatedForLongBeginsAnew) {
  RowAdmission admission(filtered({.min_frequency = 2, .steps_to_live = 3}));
  const std::vector<int64_t> row{4};
  admission.note(row, 1);
  EXPECT_FALSE(admission.note(row, 3).admitted.defined());
  EXPECT_FALSE(admission.is_expired(4, 5));
  EXPECT_TRUE(admission.is_expired(4, 6));
  EXPECT_FALSE(admission.is_expired(5, 6));  // never updated
  EXPECT_THAT(admission.note(row, 6).expired, IsEmpty());
  const auto late = admission.note(row, 10);
  EXPECT_THAT(late.expired, ElementsAre(4));
  EXPECT_EQ(late.admitted.numel(), 0);  // this update counts as its first one again
  EXPECT_FALSE(admission.note(row, 11).admitted.defined());
}

TEST(RowAdmission, RowsBeginAsThoseOfTheTable) {
  const RowAdmission admission(filtered({.min_frequency = 2}));
  for (int64_t row = 0; row < kFilteredRows; ++row)
    EXPECT_TRUE(admission.initial_row(row, like()).squeeze(0).equal(initial_rows()[row]));
}

TEST(RowAdmission, RefusesFiltersThatAreNone) {
  EXPECT_THAT(
      [] { RowAdmission(filtered({.min_frequency = -1})); },
      ThrowsMessage<InvalidArgument>(HasSubstr("min_frequency: expected 0 to 2147483647, but got -1")));
  EXPECT_THAT([] { RowAdmission(filtered({.steps_to_live = int64_t{1} << 40})); },
              ThrowsMessage<InvalidArgument>(HasSubstr("steps_to_live: expected")));
}

/// Reference: a filtered table stepped by Adagrad, written row by row.
class PlainTable {
 public:
  explicit PlainTable(const RowFilter& filter) : filter_(filter) {}

  void update(const std::set<int64_t>& rows, const std::map<int64_t, std::vector<double>>& gradients,
              double lr, double eps) {
    ++version_;
    for (const int64_t row : rows) {
      auto& held = rows_[row];
      if (is_expired(held, version_ - 1)) held = {};
      ++held.updates;
      held.last = version_;
      if (held.updates < filter_.min_frequency) continue;
      if (held.values.empty()) {
        held.values = initial(row);
        held.sums.assign(kFilteredColumns, 0);
      }
      for (size_t i = 0; i < kFilteredColumns; ++i) {
        const double gradient = gradients.at(row)[i];
        held.sums[i] += gradient * gradient;
        held.values[i] -= lr * gradient / (std::sqrt(held.sums[i]) + eps);
      }
    }
  }
  std::vector<double> values(int64_t row) const {
    const auto found = rows_.find(row);
    if (found == rows_.end() || found->second.values.empty() || is_expired(found->second, version_))
      return initial(row);
    return found->second.values;
  }

 private:
  struct Row {
    int64_t updates = 0;
    int64_t last = 0;
    std::vector<double> values;
    std::vector<double> sums;
  };

  bool is_expired(const Row& row, int64_t version) const {
    return filter_.steps_to_live > 0 && row.updates > 0 && version - row.last >= filter_.steps_to_live;
  }
  static std::vector<double> initial(int64_t row) {
    const auto values = initial_rows()[row].contiguous();
    return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + kFilteredColumns};
  }

  const RowFilter filter_;
  std::map<int64_t, Row> rows_;
  int64_t version_ = 0;
};

class FilteredShardTest : public ::testing::TestWithParam<RowFilter> {};

TEST_P(FilteredShardTest, TrainsTheRowsThatItsFilterAdmits) {
  const AdagradRule rule{.eps = 0.01};
  const auto make = [&] {
    return std::make_unique<ParameterShard>("table", initial_rows(), rule, filtered(GetParam()));
  };
  auto shard = make();
  PlainTable plain(GetParam());
  std::mt19937 random(4);
  std::normal_distribution<double> normal;
  for (uint64_t closure = 0; closure < 60; ++closure) {
    std::set<int64_t> rows;
    while (rows.size() < 3)
      rows.insert(std::min<int64_t>(kFilteredRows - 1, static_cast<int64_t>(random() % 16) / 2));
    std::map<int64_t, std::vector<double>> gradients;
    std::vector<double> flat;
    for (const int64_t row : rows) {
      gradients[row] = {normal(random), normal(random)};
      flat.insert(flat.end(), gradients[row].begin(), gradients[row].end());
    }
    const auto numbers = at::tensor(std::vector<int64_t>(rows.begin(), rows.end()), at::kLong);
    const PushedStep step{.id = {closure, 0}, .lr = 0.1, .version = closure};
    shard->push_rows(numbers, at::tensor(flat, at::kDouble).view({-1, kFilteredColumns}), step);
    EXPECT_EQ(shard->push_rows(numbers, at::zeros({3, kFilteredColumns}, at::kDouble), step).outcome,
              PushOutcome::kRepeated);  // and not counted
    plain.update(rows, gradients, 0.1, 0.01);
    const auto all = shard->pull().values;
    EXPECT_TRUE(shard->pull_rows(at::arange(kFilteredRows)).values.equal(all));
    for (int64_t row = 0; row < kFilteredRows; ++row) {
      for (int64_t i = 0; i < kFilteredColumns; ++i)
        EXPECT_NEAR(all[row][i].item<double>(), plain.values(row)[static_cast<size_t>(i)], 1e-12)
            << "row " << row << " after " << closure;
    }
    if (closure % 7 == 3) {  // restart
      const auto saved = shard->save();
      shard = make();
      shard->restore(saved);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ParameterShard, FilteredShardTest,
                         ::testing::Values(RowFilter{.min_frequency = 4}, RowFilter{.steps_to_live = 3},
                                           RowFilter{.min_frequency = 2, .steps_to_live = 5}));

TEST(ParameterShard, WithAFilterTakesGradientsByRows) {
  ParameterShard shard("table", initial_rows(), SgdRule{}, filtered({.min_frequency = 2}));
  EXPECT_THAT(
      ([&] {
        shard.push(at::zeros({kFilteredRows, kFilteredColumns}, at::kDouble), {.id = {1, 0}, .lr = 0.1});
      }),
      ThrowsMessage<InvalidArgument>(StartsWith("table: expected a gradient by rows")));
  // A refused push counts nothing.
  const auto refuse = [&] {
    shard.push_rows(at::tensor({3, 3}, at::kLong), at::zeros({2, kFilteredColumns}, at::kDouble),
                    {.id = {1, 0}, .lr = 0.1});
  };
  EXPECT_THROW(refuse(), InvalidArgument);
  EXPECT_EQ(shard.save().optimizer.back().second.sum().item<int64_t>(), 0);
}

TEST(ParameterShard, IsAlikeWithTheSameFilterAlone) {
  const ParameterShard shard("table", initial_rows(), SgdRule{}, filtered({.min_frequency = 2}));
  shard.check_alike({kFilteredRows, kFilteredColumns}, at::kDouble, SgdRule{},
                    filtered({.min_frequency = 2}));
  for (const auto& other : {std::optional<FilteredRows>(), std::optional(filtered({.min_frequency = 3}))}) {
    EXPECT_THAT(([&] {
                  shard.check_alike({kFilteredRows, kFilteredColumns}, at::kDouble, SgdRule{}, other);
                }),
                ThrowsMessage<InvalidArgument>(HasSubstr("the row filter that it was made with")));
  }
}

}  // namespace
}  // namespace lockstep
