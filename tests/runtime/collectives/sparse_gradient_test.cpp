#include "lockstep/runtime/collectives/internal/sparse_gradient.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

TEST(SparseGradient, SumsRowsOverTheRanksToTheSameBitsOnEach) {
  constexpr int kRanks = 3;
  ReplicaGroup group(kRanks);
  const auto parameter = torch::zeros({6, 2});
  // Repeated rows within a rank, rows shared between ranks, and one rank without a gradient.
  std::vector<at::Tensor> gradients{
      torch::sparse_coo_tensor(torch::tensor({{1, 4, 1}}),
                               torch::tensor({{1.F, 2.F}, {3.F, 4.F}, {5.F, 6.F}}), {6, 2}),
      at::Tensor(), torch::sparse_coo_tensor(torch::tensor({{4}}), torch::tensor({{10.F, 20.F}}), {6, 2})};
  const auto expected = gradients[0].to_dense() + gradients[2].to_dense();
  std::vector<at::Tensor> sums(kRanks);
  group.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    sums[self] = sum_sparse_gradient(group.backend(rank), parameter, gradients[self]);
  });
  for (const auto& sum : sums) {
    EXPECT_TRUE(sum.is_sparse());
    EXPECT_TRUE(sum.is_coalesced());
    EXPECT_EQ(sum._nnz(), 2);
    EXPECT_TRUE(torch::equal(sum.to_dense(), expected));
  }
}

TEST(SparseGradient, IsEmptyWhereNoRankHasOne) {
  ReplicaGroup group(2);
  group.run([&](int rank) {
    const auto sum = sum_sparse_gradient(group.backend(rank), torch::zeros({6, 2}), at::Tensor());
    EXPECT_EQ(sum._nnz(), 0);
    EXPECT_EQ(sum.sizes(), (std::vector<int64_t>{6, 2}));
  });
}

at::Tensor sparse_rows(const std::vector<int64_t>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  return torch::sparse_coo_tensor(torch::tensor(rows, torch::kLong).unsqueeze(0),
                                  torch::arange(1, 2 * count + 1, torch::kDouble).view({count, 2}), {9, 2});
}

TEST(CoalescedRows, AreTheSameWhereTheyAscend) {
  for (const auto& rows : {std::vector<int64_t>{1, 4, 8}, {5}, {}}) {
    const auto gradient = sparse_rows(rows);
    const auto coalesced = coalesced_rows(gradient);
    EXPECT_TRUE(coalesced.is_coalesced());
    EXPECT_EQ(coalesced.values().data_ptr(), gradient._values().data_ptr());
    EXPECT_TRUE(coalesced.to_dense().equal(gradient.to_dense()));
  }
}

TEST(CoalescedRows, AreSortedAndSummedElsewhere) {
  for (const auto& rows : {std::vector<int64_t>{4, 1, 8}, {1, 1, 8}, {8, 4, 4}}) {
    const auto gradient = sparse_rows(rows);
    const auto coalesced = coalesced_rows(gradient);
    const auto expected = gradient.coalesce();
    EXPECT_TRUE(coalesced.indices().equal(expected.indices()));
    EXPECT_TRUE(coalesced.values().equal(expected.values()));
  }
}

}  // namespace
}  // namespace lockstep
