#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/tests/support/worker_training.h"
#include "lockstep/training/metrics/metrics.h"

namespace lockstep {
namespace {

class MultiWorkerMirrored : public testing::TestWithParam<std::vector<int>> {};

INSTANTIATE_TEST_SUITE_P(Layouts, MultiWorkerMirrored,
                         testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3},
                                         std::vector{1, 1, 1, 1}),
                         [](const auto& info) {
                           std::string name = "Replicas";
                           for (const int count : info.param) name += "_" + std::to_string(count);
                           return name;
                         });

TEST_P(MultiWorkerMirrored, EqualsOneDeviceWithTheSameGlobalBatch) {
  const auto start = initial_values();
  const auto expected =
      trained_alone<TanhNet>([&] { return tanh_net_of(start); }, examples_of_three_classes(), momentum_sgd());
  EXPECT_LE(largest_difference(trained_by_workers({.num_replicas = GetParam(), .start = start}), expected),
            1e-12);
}

TEST_P(MultiWorkerMirrored, NumbersReplicasOverAllWorkers) {
  int total = 0;
  for (const int count : GetParam()) total += count;
  expect_no_worker_failed(run_strategies(GetParam(), [&](MultiWorkerMirroredStrategy& strategy) {
    EXPECT_EQ(strategy.num_replicas_in_sync(), total);
    const auto ids = strategy.run([](ReplicaContext& replica) { return replica.replica_id(); });
    for (size_t local = 0; local < ids.local_values().size(); ++local)
      EXPECT_EQ(ids.local_values()[local], strategy.first_local_replica() + static_cast<int>(local));
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ids), total * (total - 1) / 2);
    EXPECT_EQ(strategy.reduce(ReduceOp::kMean, ids), (total - 1) / 2.0);
  }));
}

TEST_P(MultiWorkerMirrored, ReducesAndGathersOverAllWorkers) {
  int total = 0;
  for (const int count : GetParam()) total += count;
  expect_no_worker_failed(run_strategies(GetParam(), [&](MultiWorkerMirroredStrategy& strategy) {
    // Replica r has r + 1 rows of value r.
    const auto rows = strategy.run([](ReplicaContext& replica) {
      return torch::full({replica.replica_id() + 1, 2}, replica.replica_id(), torch::kDouble);
    });
    std::vector<torch::Tensor> expected;
    double sum = 0;
    double count = 0;
    for (int replica = 0; replica < total; ++replica) {
      expected.push_back(torch::full({replica + 1, 2}, replica, torch::kDouble));
      sum += replica * (replica + 1);
      count += replica + 1;
    }
    EXPECT_TRUE(strategy.gather(rows).equal(torch::cat(expected)));
    EXPECT_TRUE(strategy.reduce(ReduceOp::kSum, rows, 0).eq(sum).all().item<bool>());
    EXPECT_TRUE(
        strategy.reduce(ReduceOp::kMean, rows, 0).allclose(torch::full({2}, sum / count, torch::kDouble)));
    const auto scalars = strategy.run(
        [](ReplicaContext& replica) { return torch::tensor(replica.replica_id() + 1.0, torch::kDouble); });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, scalars).item<double>(), total * (total + 1) / 2.0);
    EXPECT_EQ(strategy.reduce(ReduceOp::kMean, scalars).item<double>(), (total + 1) / 2.0);
  }));
}

TEST_P(MultiWorkerMirrored, ExtendedCallsAreOverAllWorkers) {
  int total = 0;
  for (const int count : GetParam()) total += count;
  expect_no_worker_failed(run_strategies(GetParam(), [&](MultiWorkerMirroredStrategy& strategy) {
    const auto ones = strategy.distribute_values_from_function(
        [](const ValueContext&) { return torch::ones({2}, torch::kDouble); });
    const auto ids = strategy.distribute_values_from_function([](const ValueContext& context) {
      return torch::full({1}, context.replica_id_in_sync_group, torch::kDouble);
    });
    auto extended = strategy.extended();
    const auto sums = extended.reduce_to(ReduceOp::kSum, ones, {"cpu:0", "cpu:1"});
    ASSERT_EQ(sums.size(), 2);
    for (const auto& sum : sums) EXPECT_TRUE(sum.eq(total).all().item<bool>());
    const auto means = extended.batch_reduce_to(ReduceOp::kMean, {ones, ids}, {"cpu:0"});
    EXPECT_EQ(means[0][0][1].item<double>(), 1);
    EXPECT_DOUBLE_EQ(means[1][0].item<double>(), (total - 1) / 2.0);
    EXPECT_THROW(extended.reduce_to(ReduceOp::kSum, ones, {}), InvalidArgument);
    const auto own = torch::full({2}, strategy.cluster_resolver()->rank() + 5.0);
    const auto mirrored = extended.broadcast_to(own);
    for (const auto& copy : mirrored.local_values()) {
      EXPECT_TRUE(copy.eq(5).all().item<bool>());
      EXPECT_FALSE(copy.is_alias_of(own));
    }
  }));
}

TEST_P(MultiWorkerMirrored, CollectivesOfReplicaFunctionsReachAllWorkers) {
  int total = 0;
  for (const int count : GetParam()) total += count;
  expect_no_worker_failed(run_strategies(GetParam(), [&](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([&](ReplicaContext& replica) {
      const auto own = torch::full({2}, replica.replica_id(), torch::kDouble);
      EXPECT_EQ(replica.all_reduce(ReduceOp::kSum, own)[0].item<double>(), total * (total - 1) / 2);
      EXPECT_EQ(replica.all_gather(own).sizes()[0], 2 * total);
      EXPECT_EQ(replica.sum_on_host(1), total);
      const auto value = own.clone();
      replica.broadcast_(value, total - 1);
      EXPECT_EQ(value[1].item<double>(), total - 1);
    });
  }));
}

/// Doubles gradients on the way out, undoes that on the way back, and counts its calls.
class DoublingCompression : public GradientCompression {
 public:
  std::string name() const override { return "doubling"; }
  torch::Tensor compress(const torch::Tensor& bucket) override {
    ++num_compressed;
    return bucket * 2;
  }
  void decompress(const torch::Tensor& sum, torch::Tensor& bucket) override { bucket.copy_(sum / 2); }

  int num_compressed = 0;
};

/// The parameters after an epoch over two workers of two replicas.
std::vector<torch::Tensor> trained_with(
    const std::function<std::shared_ptr<GradientCompression>()>& make_compression) {
  return trained_by_workers({.num_replicas = {2, 2},
                             .start = initial_values(),
                             .change =
                                 [&](int, WorkerSetUp& set_up) {
                                   set_up.options.communication.gradient_compression = make_compression();
                                 },
                             .epochs = 1});
}

TEST(MultiWorkerMirroredStrategy, CompressesGradientsBetweenWorkers) {
  const auto exact = trained_with([] { return nullptr; });
  // bfloat16 keeps 8 bits of a number and float16 keeps 11, which bounds the change to a step of 0.1 times
  // gradients below 1.
  const double rounded =
      largest_difference(trained_with([] { return make_gradient_compression("bfloat16"); }), exact);
  EXPECT_GT(rounded, 0);
  EXPECT_LT(rounded, 5e-3);
  const double half =
      largest_difference(trained_with([] { return make_gradient_compression("float16"); }), exact);
  EXPECT_GT(half, 0);
  EXPECT_LT(half, rounded);
}

TEST(MultiWorkerMirroredStrategy, TakesAUsersOwnCompression) {
  std::vector<std::shared_ptr<DoublingCompression>> used;
  std::mutex mutex;
  const auto doubled = trained_with([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return used.emplace_back(std::make_shared<DoublingCompression>());
  });
  EXPECT_LE(largest_difference(doubled, trained_with([] { return nullptr; })), 1e-15);
  ASSERT_EQ(used.size(), 2);
  for (const auto& compression : used) EXPECT_EQ(compression->num_compressed, 3);  // steps of one bucket
}

TEST(MultiWorkerMirroredStrategy, BringsMetricsOfAllWorkersTogether) {
  expect_no_worker_failed(run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto mean = strategy.scope([](ReplicaContext&) { return Mean(); });
    strategy.run(
        [](ReplicaContext& replica, Mean& local) {
          local.update(torch::full({replica.replica_id() + 1}, replica.replica_id(), torch::kDouble));
        },
        mean);
    EXPECT_DOUBLE_EQ(result(strategy, mean), (0 * 1 + 1 * 2 + 2 * 3) / 6.0);
  }));
}

TEST(MultiWorkerMirroredStrategy, ReducesSparseValuesOfAllWorkers) {
  expect_no_worker_failed(run_strategies({2, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    // Replica r has r + 1 in row r, and in row 3.
    const auto rows = strategy.distribute_values_from_function([](const ValueContext& context) {
      const int64_t own = context.replica_id_in_sync_group;
      return torch::sparse_coo_tensor(torch::tensor({own, int64_t{3}}).unsqueeze(0),
                                      torch::full({2}, own + 1.0), {4});
    });
    const auto expected = torch::tensor({1.0, 2.0, 3.0, 6.0}, torch::kFloat);
    const auto sum = strategy.reduce(ReduceOp::kSum, rows);
    EXPECT_TRUE(sum.is_coalesced());
    EXPECT_TRUE(torch::equal(sum.to_dense(), expected));
    EXPECT_TRUE(torch::allclose(strategy.reduce(ReduceOp::kMean, rows).to_dense(), expected / 3));
    const auto everywhere = strategy.extended().reduce_to(ReduceOp::kSum, rows, {"cpu:0", "cpu:1"});
    for (const auto& copy : everywhere) EXPECT_TRUE(torch::equal(copy.to_dense(), expected));
    strategy.run([&](ReplicaContext& replica) {
      const int64_t own = replica.replica_id();
      const auto value = torch::sparse_coo_tensor(torch::tensor({own}).unsqueeze(0), torch::ones({1}), {4});
      EXPECT_TRUE(torch::equal(replica.all_reduce(ReduceOp::kSum, value).to_dense(),
                               torch::tensor({1.0F, 1.0F, 1.0F, 0.0F})));
    });
  }));
}

TEST(MultiWorkerMirroredStrategy, MakesTheReplicasRandomStreamsOfTheChiefsSeed) {
  const auto draws_of = [](const std::vector<int>& layout, const std::vector<uint64_t>& seeds) {
    std::vector<torch::Tensor> draws(layout.size());
    const auto errors = run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto rows = strategy.run([](ReplicaContext&) { return torch::rand({1, 4}); });
          draws[static_cast<size_t>(strategy.cluster_resolver()->rank())] = strategy.gather(rows);
        },
        [&](int rank, WorkerSetUp& set_up) { set_up.options.seed = seeds[static_cast<size_t>(rank)]; });
    expect_no_worker_failed(errors);
    return draws[0];
  };
  const auto draws = draws_of({2, 1}, {5, 6});
  EXPECT_TRUE(draws.equal(draws_of({1, 2}, {5, 7})));
  EXPECT_FALSE(draws.equal(draws_of({2, 1}, {6, 5})));
}

}  // namespace
}  // namespace lockstep
