#include "lockstep/strategies/core/strategy_extended.h"

#include <gtest/gtest.h>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

class Extended : public testing::Test {
 protected:
  PerReplica<torch::Tensor> ids(double scale) {
    return strategy_.distribute_values_from_function([scale](const ValueContext& context) {
      return torch::full({2}, scale * (context.replica_id_in_sync_group + 1));
    });
  }

  MirroredStrategy strategy_{{"/device:CPU:1", "cpu:0", "CPU:5"}, {.intra_op_threads = 1}};
};

TEST_F(Extended, NamesItsDevicesInTheirCanonicalSpellingAndOrder) {
  const std::vector<std::string> expected{"cpu:1", "cpu:0", "cpu:5"};
  EXPECT_EQ(strategy_.extended().worker_devices(), expected);
  EXPECT_EQ(strategy_.extended().parameter_devices(), expected);
}

TEST_F(Extended, ReduceToGivesOneTensorADestination) {
  const auto sums = strategy_.extended().reduce_to(ReduceOp::kSum, ids(1), {"cpu:0", "/cpu:2"});
  ASSERT_EQ(sums.size(), 2U);
  for (const auto& sum : sums) EXPECT_TRUE(torch::equal(sum, torch::full({2}, 6.0)));
  EXPECT_TRUE(torch::equal(strategy_.extended().reduce_to(ReduceOp::kMean, ids(1), {"cpu:0"})[0],
                           torch::full({2}, 2.0)));
  EXPECT_THROW(strategy_.extended().reduce_to(ReduceOp::kSum, ids(1), {}), InvalidArgument);
  const auto message =
      message_of<InvalidArgument>([&] { strategy_.extended().reduce_to(ReduceOp::kSum, ids(1), {"tpu:0"}); });
  EXPECT_NE(message.find("'tpu:0'"), std::string::npos) << message;
}

/// Row r + 1 and row 0 of replica r's value are r + 1 times `scale`.
torch::Tensor rows_of(int replica, double scale) {
  const auto rows = torch::tensor({int64_t{0}, int64_t{replica} + 1}).unsqueeze(0);
  return torch::sparse_coo_tensor(rows, torch::full({2, 2}, scale * (replica + 1)), {5, 2});
}

PerReplica<torch::Tensor> sparse_rows(Strategy& strategy, double scale) {
  return strategy.distribute_values_from_function(
      [scale](const ValueContext& context) { return rows_of(context.replica_id_in_sync_group, scale); });
}

void expect_sum_of_rows(const torch::Tensor& sum, double scale) {
  EXPECT_EQ(sum.layout(), torch::kSparse);
  EXPECT_TRUE(sum.is_coalesced());
  torch::Tensor expected = torch::zeros({5, 2});
  for (int replica = 0; replica < 3; ++replica) expected += rows_of(replica, scale).to_dense();
  EXPECT_TRUE(torch::equal(sum.to_dense(), expected));
}

TEST_F(Extended, SparseValuesAreReducedToSparseOnes) {
  const auto sums =
      strategy_.extended().reduce_to(ReduceOp::kSum, sparse_rows(strategy_, 1), {"cpu:0", "cpu:2", "cpu:0"});
  ASSERT_EQ(sums.size(), 3U);
  for (const auto& sum : sums) expect_sum_of_rows(sum, 1);
  sums[0].values().fill_(0);
  expect_sum_of_rows(sums[1], 1);  // each destination has memory of its own
  expect_sum_of_rows(strategy_.reduce(ReduceOp::kMean, sparse_rows(strategy_, 1)) * 3, 1);
}

TEST_F(Extended, SparseValuesAreReducedBesideDenseOnes) {
  const auto sums = strategy_.extended().batch_reduce_to(
      ReduceOp::kSum, {ids(1), sparse_rows(strategy_, 1), ids(2), sparse_rows(strategy_, 3)}, {"cpu:0"});
  EXPECT_TRUE(torch::equal(sums.at(0).at(0), torch::full({2}, 6.0)));
  expect_sum_of_rows(sums.at(1).at(0), 1);
  EXPECT_TRUE(torch::equal(sums.at(2).at(0), torch::full({2}, 12.0)));
  expect_sum_of_rows(sums.at(3).at(0), 3);
}

TEST_F(Extended, ValuesThatAreSparseOnSomeReplicasOnlyAreRefused) {
  const auto mixed = strategy_.distribute_values_from_function([](const ValueContext& context) {
    const auto rows = rows_of(context.replica_id_in_sync_group, 1);
    return context.replica_id_in_sync_group == 1 ? rows.to_dense() : rows;
  });
  const auto message =
      message_of<InvalidArgument>([&] { strategy_.extended().reduce_to(ReduceOp::kSum, mixed, {"cpu:0"}); });
  EXPECT_NE(message.find("replica 0 has Sparse and replica 1 has Strided"), std::string::npos) << message;
}

TEST_F(Extended, BatchReduceToTakesSeveralValuesAtOnce) {
  const auto results =
      strategy_.extended().batch_reduce_to(ReduceOp::kSum, {ids(1), ids(10)}, {"cpu:0", "cpu:1"});
  ASSERT_EQ(results.size(), 2U);
  for (const auto& sum : results[0]) EXPECT_TRUE(torch::equal(sum, torch::full({2}, 6.0)));
  for (const auto& sum : results[1]) EXPECT_TRUE(torch::equal(sum, torch::full({2}, 60.0)));
}

TEST_F(Extended, BroadcastToGivesEveryReplicaACopyOfItsOwn) {
  const auto value = torch::ones({2});
  auto mirrored = strategy_.extended().broadcast_to(value);
  strategy_.run([](ReplicaContext& replica, torch::Tensor& copy) { copy.add_(replica.replica_id()); },
                mirrored);
  for (int replica = 0; replica < 3; ++replica) {
    EXPECT_TRUE(
        torch::equal(mirrored.local_values()[static_cast<size_t>(replica)], torch::full({2}, 1.0 + replica)));
  }
  EXPECT_TRUE(torch::equal(value, torch::ones({2}))) << "the caller's tensor is not among them";
}

TEST_F(Extended, UpdateGivesEachReplicaItsOwnPartOfTheArguments) {
  auto variable = strategy_.extended().broadcast_to(torch::zeros({2}));
  const auto caller = std::this_thread::get_id();
  strategy_.extended().update(
      variable,
      [&](torch::Tensor& own, const torch::Tensor& part, const double& scale) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        own.add_(part, scale);
      },
      ids(1), 2.0);
  for (int replica = 0; replica < 3; ++replica) {
    EXPECT_TRUE(torch::equal(variable.local_values()[static_cast<size_t>(replica)],
                             torch::full({2}, 2.0 * (replica + 1))));
  }
}

TEST_F(Extended, UpdateRefusesArgumentsOfFewerReplicas) {
  MirroredStrategy two(cpu_devices(2), {.intra_op_threads = 1});
  const auto fewer = two.extended().broadcast_to(torch::ones({2}));
  auto variable = strategy_.extended().broadcast_to(torch::zeros({2}));
  const auto add = [](torch::Tensor& own, const torch::Tensor& part) { own.add_(part); };
  const auto message =
      message_of<InvalidArgument>([&] { strategy_.extended().update(variable, add, fewer); });
  EXPECT_NE(message.find("got one with 2"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
