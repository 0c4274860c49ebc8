// Sums of sparse gradients, whose parameters have no slots in the buckets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "lockstep/tests/support/reducers.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kTable = 0;
constexpr size_t kWeight = 1;
constexpr int64_t kSparseRows = 1000;
constexpr int kTrainers = 3;

std::vector<at::Tensor> table_and_weight() {
  return {torch::ones({kSparseRows, 3}).requires_grad_(), torch::ones({3}).requires_grad_()};
}

/// The rows that a replica looks up; the last replica looks up none.
std::optional<at::Tensor> rows_of(int rank) {
  if (rank == 0) return torch::tensor(std::vector<int64_t>{1, 4, 1});
  if (rank == 1) return torch::tensor(std::vector<int64_t>{4, 9});
  return std::nullopt;
}

/// Replica r's gradients are r + 1 in its rows, once for each time that it looks them up.
at::Tensor sum_of_rows() {
  auto expected = torch::zeros({kSparseRows, 3});
  expected[1] = 2;
  expected[4] = 3;
  expected[9] = 2;
  return expected;
}

class SparseGradients : public testing::TestWithParam<bool> {
 protected:
  Reducers make_reducers(const BucketOptions& buckets) const {
    return {kTrainers, table_and_weight, buckets,
            GetParam() ? std::vector<size_t>{kTable} : std::vector<size_t>{}};
  }

  /// Without zeroing gradients. `is_sparse`: the layout of the table's gradient.
  static void step(Reducers& reducers, int rank, bool is_sparse = true) {
    auto& p = reducers.parameters(rank);
    if (const auto rows = rows_of(rank)) {
      const auto looked_up = torch::embedding(p[kTable], *rows, -1, false, is_sparse);
      (looked_up.sum() * (rank + 1) + p[kWeight].sum()).backward();
    }
    reducers.reducer(rank).finish();
    reducers.reducer(rank).mark_applied();
  }

  static void zero_and_step(Reducers& reducers, bool is_sparse = true) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      step(reducers, rank, is_sparse);
    });
  }

  static void expect_sums(Reducers& reducers, bool are_sparse = true) {
    for (int rank = 0; rank < kTrainers; ++rank) {
      const auto sum = reducers.gradient(rank, kTable);
      EXPECT_EQ(sum.is_sparse(), are_sparse);
      EXPECT_TRUE(torch::equal(are_sparse ? sum.to_dense() : sum, sum_of_rows()));
      EXPECT_TRUE(reducers.gradient(rank, kWeight).eq(2).all().item<bool>());
    }
  }

  static int64_t bytes_of_buckets(Reducers& reducers) { return reducers.reducer(0).buckets().bytes(); }
};
INSTANTIATE_TEST_SUITE_P(IsExpected, SparseGradients, testing::Bool());

constexpr int64_t kBytesOfTable = 4 * 3 * kSparseRows;

TEST_P(SparseGradients, AreSummedBesideDenseOnesInEveryStep) {
  for (const auto& buckets : {kOneParameterABucket, kOneBucket}) {
    auto reducers = make_reducers(buckets);
    for (int i = 0; i < 3; ++i) {
      zero_and_step(reducers);
      expect_sums(reducers);
    }
    // Gradients were not zeroed, so the sparse one is refused too.
    const auto text = reducers.cause_of([&](int rank) {
      reducers.parameters(rank)[kWeight].mutable_grad().reset();
      step(reducers, rank);
    });
    EXPECT_THAT(text, AllOf(HasSubstr("'parameter_0'"), HasSubstr("zero_grad()")));
  }
}

TEST_P(SparseGradients, TakeNoMemoryInBucketsOnceTheyAreKnown) {
  auto reducers = make_reducers(kOneBucket);
  EXPECT_EQ(bytes_of_buckets(reducers) >= kBytesOfTable, !GetParam());
  for (int i = 0; i < 2; ++i) zero_and_step(reducers);
  EXPECT_LT(bytes_of_buckets(reducers), 1000);
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 1U);
  // No sum of a bucket is left to the end of the step.
  const auto before = reducers.reducer(0).statistics();
  zero_and_step(reducers);
  EXPECT_EQ(reducers.reducer(0).statistics().launched_in_backward, before.launched_in_backward + 1);
  EXPECT_EQ(reducers.reducer(0).statistics().rebuilds, before.rebuilds);
}

TEST_P(SparseGradients, LeaveTheSameLayoutToReplicasThatBeginTheNextStepInAnotherRun) {
  for (const auto& buckets : {kOneParameterABucket, kOneBucket}) {
    auto reducers = make_reducers(buckets);
    reducers.run([&](int rank) {
      reducers.zero(rank);
      step(reducers, rank);
      reducers.zero(rank);
      // Launches nothing: the weight's bucket comes first, or is the same one.
      if (rank == 0)
        torch::embedding(reducers.parameters(0)[kTable], *rows_of(0), -1, false, true).sum().backward();
    });
    reducers.run([&](int rank) {
      if (rank > 0) return step(reducers, rank);
      reducers.parameters(rank)[kWeight].sum().backward();
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    expect_sums(reducers);
    zero_and_step(reducers);
    expect_sums(reducers);
  }
}

TEST_P(SparseGradients, TakeNoMemoryInBucketsFromTheSecondStepOfARun) {
  auto reducers = make_reducers(kOneBucket);
  reducers.run([&](int rank) {
    for (int i = 0; i < 2; ++i) {
      reducers.zero(rank);
      step(reducers, rank);
    }
    EXPECT_LT(reducers.reducer(rank).buckets().bytes(), 1000);
  });
  expect_sums(reducers);
}

TEST_P(SparseGradients, MayBeDenseLaterAndThenKeepASlot) {
  auto reducers = make_reducers(kOneBucket);
  for (int i = 0; i < 2; ++i) zero_and_step(reducers);
  for (int i = 0; i < 3; ++i) {
    zero_and_step(reducers, /*is_sparse=*/false);
    expect_sums(reducers, /*are_sparse=*/false);
  }
  EXPECT_GE(bytes_of_buckets(reducers), kBytesOfTable);
  const auto rebuilds = reducers.reducer(0).statistics().rebuilds;
  for (const bool is_sparse : {true, false, true}) {
    zero_and_step(reducers, is_sparse);
    expect_sums(reducers, is_sparse);
  }
  EXPECT_EQ(reducers.reducer(0).statistics().rebuilds, rebuilds) << "a layout for each change is dear";
}

TEST_P(SparseGradients, AreForgottenIfTheyAreDenseAndZeroed) {
  auto reducers = make_reducers(kOneBucket);
  for (int i = 0; i < 2; ++i) zero_and_step(reducers);
  reducers.run([&](int rank) {
    reducers.zero(rank);
    (reducers.parameters(rank)[kTable].sum() * 7 + reducers.parameters(rank)[kWeight].sum()).backward();
    reducers.zero(rank);
    step(reducers, rank, /*is_sparse=*/false);
  });
  expect_sums(reducers, /*are_sparse=*/false);
}

TEST_P(SparseGradients, AreSummedIfAReplicaFailedInAStepBefore) {
  auto reducers = make_reducers(kOneBucket);
  zero_and_step(reducers);
  const auto errors = reducers.errors_of([&](int rank) {
    reducers.zero(rank);
    step(reducers, rank);
    if (rank == 1) throw std::runtime_error("after the step");
  });
  EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "after the step");
  for (int i = 0; i < 2; ++i) {
    zero_and_step(reducers);
    expect_sums(reducers);
  }
  EXPECT_LT(bytes_of_buckets(reducers), 1000);
}

TEST_P(SparseGradients, MayBeAllThatAnOptimizerHas) {
  const auto make = [] { return std::vector<at::Tensor>{torch::ones({kSparseRows, 3}).requires_grad_()}; };
  Reducers reducers(kTrainers, make, kOneBucket,
                    GetParam() ? std::vector<size_t>{kTable} : std::vector<size_t>{});
  for (int i = 0; i < 3; ++i) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      if (const auto rows = rows_of(rank))
        (torch::embedding(reducers.parameters(rank)[0], *rows, -1, false, true).sum() * (rank + 1))
            .backward();
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    for (int rank = 0; rank < kTrainers; ++rank)
      EXPECT_TRUE(torch::equal(reducers.gradient(rank, 0).to_dense(), sum_of_rows()));
  }
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 0U);
  // Nobody looks anything up.
  reducers.run([&](int rank) {
    reducers.zero(rank);
    reducers.reducer(rank).finish();
  });
  for (int rank = 0; rank < kTrainers; ++rank) EXPECT_FALSE(reducers.gradient(rank, 0).defined());
}

TEST_P(SparseGradients, ArePassedOverWhileTheirParameterIsFrozen) {
  auto reducers = make_reducers(kOneBucket);
  for (int i = 0; i < 2; ++i) zero_and_step(reducers);
  for (int rank = 0; rank < kTrainers; ++rank) reducers.parameters(rank)[kTable].requires_grad_(false);
  for (int i = 0; i < 2; ++i) {
    zero_and_step(reducers);
    for (int rank = 0; rank < kTrainers; ++rank) {
      EXPECT_FALSE(reducers.gradient(rank, kTable).defined());
      EXPECT_TRUE(reducers.gradient(rank, kWeight).eq(2).all().item<bool>());
    }
  }
  for (int rank = 0; rank < kTrainers; ++rank) reducers.parameters(rank)[kTable].requires_grad_(true);
  zero_and_step(reducers);
  expect_sums(reducers);
}

}  // namespace
}  // namespace lockstep
