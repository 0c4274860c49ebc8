// Combining the replicas' values between runs: reduce, gather, local_results and their relatives.
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

class ReduceAcrossReplicas : public testing::Test {
 protected:
  PerReplica<torch::Tensor> pair(const torch::Tensor& a, const torch::Tensor& b) {
    return two_.distribute_values_from_function(
        [&](const ValueContext& context) { return context.replica_id_in_sync_group == 0 ? a : b; });
  }

  MirroredStrategy two_{cpu_devices(2), {.intra_op_threads = 1}};
  OneDeviceStrategy one_{"cpu:0"};
};

TEST_F(ReduceAcrossReplicas, WithoutAnAxisIsUnweighted) {
  const auto values = pair(torch::tensor({1.0, 2.0}), torch::tensor({3.0, 8.0}));
  EXPECT_TRUE(torch::equal(two_.reduce(ReduceOp::kSum, values), torch::tensor({4.0, 10.0})));
  EXPECT_TRUE(torch::equal(two_.reduce(ReduceOp::kMean, values), torch::tensor({2.0, 5.0})));
  const auto message = message_of<InvalidArgument>(
      [&] { two_.reduce(ReduceOp::kMean, pair(torch::ones({2}), torch::ones({1}))); });
  EXPECT_NE(message.find("replica 0 has [2] and replica 1 has [1]"), std::string::npos) << message;
}

TEST_F(ReduceAcrossReplicas, OverAnAxisAMeanIsTheSumOfSumsOverTheSumOfCounts) {
  EXPECT_EQ(
      two_.reduce(ReduceOp::kMean, pair(torch::tensor({1.0, 2.0}), torch::tensor({6.0})), 0).item<double>(),
      3.0);
  EXPECT_EQ(
      two_.reduce(ReduceOp::kMean, pair(torch::tensor({1.0, 2.0}), torch::empty({0})), 0).item<double>(),
      1.5);
  EXPECT_EQ(
      two_.reduce(ReduceOp::kSum, pair(torch::tensor({1.0, 2.0}), torch::tensor({6.0})), 0).item<double>(),
      9.0);
  EXPECT_EQ(
      two_.reduce(ReduceOp::kMean, pair(torch::tensor({1, 2}), torch::tensor({7, 0})), 0).item<double>(), 2.5)
      << "integers have a mean too";
}

TEST_F(ReduceAcrossReplicas, NegativeAxesCountFromTheEnd) {
  const auto a = torch::arange(6.0).view({2, 3}), b = torch::arange(8.0).view({2, 4});
  const auto expected = (a.sum(1) + b.sum(1)) / 7;
  for (const int64_t axis : {1, -1})
    EXPECT_TRUE(torch::allclose(two_.reduce(ReduceOp::kMean, pair(a, b), axis), expected));
  for (const int64_t axis : {2, -3}) {
    const auto message = message_of<InvalidArgument>([&] { two_.reduce(ReduceOp::kSum, pair(a, b), axis); });
    EXPECT_NE(message.find("2 dimensions, but got " + std::to_string(axis)), std::string::npos) << message;
  }
  EXPECT_THROW(two_.reduce(ReduceOp::kSum, pair(torch::ones({}), torch::ones({})), 0), InvalidArgument);
}

TEST_F(ReduceAcrossReplicas, APlainValueIsItsOwnMeanAndHasNoSum) {
  const auto value = torch::tensor({1.0, 3.0});
  EXPECT_TRUE(torch::equal(two_.reduce(ReduceOp::kMean, value), value));
  EXPECT_THROW(two_.reduce(ReduceOp::kSum, value), InvalidArgument);
  EXPECT_TRUE(torch::equal(one_.reduce(ReduceOp::kSum, value), value));
  EXPECT_EQ(one_.reduce(ReduceOp::kMean, value, 0).item<double>(), 2.0)
      << "one replica reduces over an axis as well";
}

TEST_F(ReduceAcrossReplicas, NumbersAreReducedInFloat64) {
  const auto ids = two_.run([](ReplicaContext& replica) { return int64_t{10} + replica.replica_id(); });
  EXPECT_EQ(two_.reduce(ReduceOp::kSum, ids), 21.0);
  EXPECT_EQ(two_.reduce(ReduceOp::kMean, ids), 10.5);
  const auto flags = two_.run([](ReplicaContext& replica) { return replica.replica_id() == 1; });
  EXPECT_EQ(two_.reduce(ReduceOp::kSum, flags), 1.0);
}

TEST_F(ReduceAcrossReplicas, GatherConcatenatesInReplicaOrder) {
  const auto values = pair(torch::tensor({{1.0, 2.0}}), torch::tensor({{3.0, 4.0}, {5.0, 6.0}}));
  EXPECT_TRUE(torch::equal(two_.gather(values), torch::tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}})));
  const auto wide = pair(torch::ones({2, 1}), torch::zeros({2, 3}));
  const auto joined = torch::tensor({{1.0, 0.0, 0.0, 0.0}, {1.0, 0.0, 0.0, 0.0}});
  EXPECT_TRUE(torch::equal(two_.gather(wide, 1), joined));
  EXPECT_TRUE(torch::equal(two_.gather(wide, -1), joined));
  EXPECT_EQ(two_.gather(pair(torch::ones({0, 2}), torch::ones({3, 2}))).size(0), 3)
      << "an empty shard adds nothing";
}

TEST_F(ReduceAcrossReplicas, GatherRefusesScalarsBadAxesAndSizesThatDifferElsewhere) {
  EXPECT_THROW(two_.gather(pair(torch::ones({}), torch::ones({}))), InvalidArgument);
  EXPECT_THROW(two_.gather(pair(torch::ones({2}), torch::ones({2})), 1), InvalidArgument);
  for (const int64_t axis : {0, -2}) {
    const auto message = message_of<InvalidArgument>([&] {
      two_.gather(pair(torch::ones({2, 3}), torch::ones({2, 4})), axis);
    });
    EXPECT_NE(message.find("replica 0 has [2, 3] and replica 1 has [2, 4]"), std::string::npos) << message;
  }
  EXPECT_THROW(two_.gather(pair(torch::ones({2}), torch::ones({2, 1}))), InvalidArgument);
}

TEST_F(ReduceAcrossReplicas, LocalResultsGivesOneValueALocalReplica) {
  const auto values = pair(torch::tensor(1), torch::tensor(2));
  EXPECT_EQ(two_.local_results(values).size(), 2U);
  EXPECT_TRUE(two_.local_results(values)[1].is_same(values.local_values()[1]));
  const auto plain = two_.local_results(torch::tensor(7));
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(plain[0].item<int>(), 7);
  EXPECT_EQ(one_.local_results(one_.run([](ReplicaContext&) { return 4; })), (std::vector<int>{4}));
}

TEST_F(ReduceAcrossReplicas, DistributeValuesFromFunctionAsksOnceForEachReplica) {
  std::vector<int> asked;
  const auto values = two_.distribute_values_from_function([&](const ValueContext& context) {
    asked.push_back(context.replica_id_in_sync_group);
    return context.num_replicas_in_sync * 10 + context.replica_id_in_sync_group;
  });
  EXPECT_EQ(asked, (std::vector<int>{0, 1}));
  EXPECT_EQ(values.local_values(), (std::vector<int>{20, 21}));
  const auto seen = two_.run([](ReplicaContext&, const int& value) { return value; }, values);
  EXPECT_EQ(seen.local_values(), values.local_values());
}

TEST_F(ReduceAcrossReplicas, PrintsEachReplicasValueWithItsDevice) {
  std::ostringstream stream;
  stream << two_.distribute_values_from_function(
      [](const ValueContext& context) { return 0.25 * (context.replica_id_in_sync_group + 1); });
  EXPECT_EQ(stream.str(), "{0: 0.25 (cpu:0), 1: 0.5 (cpu:1)}");
}

}  // namespace
}  // namespace lockstep
