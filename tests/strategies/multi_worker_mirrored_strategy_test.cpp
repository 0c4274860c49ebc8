#include "lockstep/strategies/multi_worker_mirrored_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/runtime/gradient_compression.h"
#include "lockstep/tests/strategies/one_device_equivalence.h"
#include "lockstep/tests/strategies/worker_strategies.h"
#include "lockstep/training/metrics.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// What worker 0 starts from; the others make something else, which is to be overwritten.
TanhNet net_of_worker(const std::vector<torch::Tensor>& values, int worker) {
  TanhNet net;
  const torch::NoGradGuard no_grad;
  const auto parameters = net->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor parameter = parameters[i];
    if (worker == 0) {
      parameter.copy_(values[i]);
    } else {
      parameter.fill_(99);
    }
  }
  return net;
}

std::vector<torch::Tensor> initial_values() {
  torch::manual_seed(17);
  return values_of(TanhNet()->parameters());
}

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
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  const auto expected = trained_alone<TanhNet>([&] { return net_of_worker(start, 0); }, data, momentum_sgd());
  std::vector<std::vector<torch::Tensor>> results(GetParam().size());
  expect_no_worker_failed(run_strategies(GetParam(), [&](MultiWorkerMirroredStrategy& strategy) {
    const int worker = strategy.cluster_resolver()->rank();
    auto model = strategy.scope([&](ReplicaContext&) { return net_of_worker(start, worker); });
    auto optimizer =
        strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
    auto batches =
        strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
    int64_t steps = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      for (const auto& batch : batches) {
        strategy.run(plain_step<TanhNet>, model, optimizer, batch);
        expect_bit_equal_replicas(model, ++steps);
      }
    }
    results[static_cast<size_t>(worker)] = values_of(model.primary()->parameters());
  }));
  EXPECT_LE(largest_difference(results[0], expected), 1e-12);
  for (const auto& result : results) EXPECT_TRUE(bit_equal(result, results[0]));
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
    // Replica r has r + 1 rows of r.
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

/// Doubles on the way out, and counts: what comes back is made right again.
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

/// The parameters after a few steps over two workers of two replicas.
std::vector<torch::Tensor> trained_with(
    const std::function<std::shared_ptr<GradientCompression>()>& make_compression) {
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  std::vector<std::vector<torch::Tensor>> results(2);
  expect_no_worker_failed(run_strategies(
      {2, 2},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const int worker = strategy.cluster_resolver()->rank();
        auto model = strategy.scope([&](ReplicaContext&) { return net_of_worker(start, worker); });
        auto optimizer = strategy.scope(
            [&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
        auto batches = strategy.distribute_dataset(TensorDataset(data.data, data.target),
                                                   {.global_batch_size = kBatchSize});
        for (const auto& batch : batches) strategy.run(plain_step<TanhNet>, model, optimizer, batch);
        expect_bit_equal_replicas(model, 3);
        results[static_cast<size_t>(worker)] = values_of(model.primary()->parameters());
      },
      [&](int, WorkerSetUp& set_up) {
        set_up.options.communication.gradient_compression = make_compression();
      }));
  EXPECT_TRUE(bit_equal(results[0], results[1]));
  return results[0];
}

TEST(MultiWorkerMirroredStrategy, CompressesGradientsBetweenWorkers) {
  const auto exact = trained_with([] { return nullptr; });
  // bfloat16 has 8 bits of a number, float16 11: a step of 0.1 times gradients below 1 changes that much
  // less.
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

/// A pipeline of `count` batches of two rows of ones.
auto pipeline_of(int count) {
  return [left = count]() mutable -> std::optional<torch::Tensor> {
    if (left-- <= 0) return std::nullopt;
    return torch::ones({2, 1}, torch::kDouble);
  };
}

TEST(MultiWorkerMirroredStrategy, FinishesStreamsOfDifferentLengthsTogether) {
  std::vector<std::vector<int64_t>> sizes(2);
  std::vector<double> sums(2);
  expect_no_worker_failed(run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
    // Worker 0 has five batches for its replica, worker 1 three for its two.
    auto batches = strategy.distribute_datasets_from_function([](const InputContext& context) {
      EXPECT_EQ(context.num_input_pipelines, 2);
      return pipeline_of(context.input_pipeline_id == 0 ? 5 : 3);
    });
    for (const auto& batch : batches) {
      sizes[worker].push_back(batch.batch_sizes()->global);
      const auto losses = strategy.run(
          [](ReplicaContext& replica, const torch::Tensor& rows) {
            // A sum over the batch, made a mean by what the context knows of the global batch.
            return compute_average_loss(replica, rows.squeeze(1));
          },
          batch);
      sums[worker] += strategy.reduce(ReduceOp::kSum, losses).item<double>();
    }
  }));
  EXPECT_THAT(sizes[0], testing::ElementsAre(6, 4, 2, 2, 2));
  EXPECT_EQ(sizes[1], sizes[0]);
  for (const double sum : sums) EXPECT_DOUBLE_EQ(sum, 5);  // a mean of ones a step
}

TEST(MultiWorkerMirroredStrategy, ResumesStreamsBehindTheEndOfAShortOne) {
  std::vector<std::vector<int64_t>> sizes(2);
  std::vector<double> sums(2);
  expect_no_worker_failed(run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
    // Worker 0's has five steps, worker 1's two.
    auto batches = strategy.distribute_datasets_from_function(
        [](const InputContext& context) { return pipeline_of(context.input_pipeline_id == 0 ? 5 : 3); });
    batches.restore({2, 3});
    for (int epoch = 2; epoch < 4; ++epoch) {
      EXPECT_EQ(batches.position().epoch, epoch);
      for (const auto& batch : batches) {
        sizes[worker].push_back(batch.batch_sizes()->global);
        for (const auto& shard : batch.local_values()) EXPECT_EQ(shard.size(1), 1);
        const auto losses = strategy.run(
            [](ReplicaContext& replica, const torch::Tensor& rows) {
              return compute_average_loss(replica, rows.squeeze(1));
            },
            batch);
        sums[worker] += strategy.reduce(ReduceOp::kSum, losses).item<double>();
      }
    }
  }));
  EXPECT_THAT(sizes[0], testing::ElementsAre(2, 2, 6, 4, 2, 2, 2));
  EXPECT_EQ(sizes[1], sizes[0]);
  for (const double sum : sums) EXPECT_DOUBLE_EQ(sum, 7);  // a mean of ones a step
}

TEST(MultiWorkerMirroredStrategy, RefusesAStreamWithoutASingleBatchWhereOthersHaveSome) {
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto batches = strategy.distribute_datasets_from_function(
        [](const InputContext& context) { return pipeline_of(context.input_pipeline_id == 0 ? 1 : 0); });
    for (const auto& batch : batches) strategy.reduce(ReduceOp::kSum, PerReplica<torch::Tensor>(batch));
  });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("worker 1's pipeline has not a single batch"));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

TEST(MultiWorkerMirroredStrategy, IsTheSoleWorkerWithoutACluster) {
  MultiWorkerMirroredStrategy strategy(
      std::make_shared<FixedClusterResolver>(ClusterMembership{.source = "no cluster"}), cpu_devices(2));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_TRUE(strategy.is_chief());
  const auto ones = strategy.run([](ReplicaContext&) { return 1; });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ones), 2);
}

const ClusterSpec kTwoWorkersAndMore({{"worker", {{0, {"127.0.0.1", 1}}, {1, {"127.0.0.1", 2}}}},
                                      {"ps", {{0, {"127.0.0.1", 3}}}}});

TEST(MultiWorkerMirroredStrategy, RefusesAParameterServer) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
                MultiWorkerMirroredStrategy(
                    std::make_shared<SimpleClusterResolver>(kTwoWorkersAndMore, "ps", 0), cpu_devices(1));
              }),
              HasSubstr("this is ps 0"));
}

TEST(MultiWorkerMirroredStrategy, AnEvaluatorEvaluatesByItselfAndDoesNotTrain) {
  // Nobody listens at the workers' addresses: an evaluator does not look for them.
  MultiWorkerMirroredStrategy strategy(
      std::make_shared<SimpleClusterResolver>(kTwoWorkersAndMore, "evaluator", 1), cpu_devices(2));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_TRUE(strategy.is_evaluator());
  EXPECT_FALSE(strategy.is_chief());
  const auto data = examples_of_three_classes();
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  auto mean = strategy.scope([](ReplicaContext&) { return Mean(); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  for (const auto& batch : batches) {
    strategy.run([](ReplicaContext&, TanhNet& net, Mean& loss,
                    const Example& shard) { loss.update(example_losses(net, shard)); },
                 model, mean, batch);
  }
  EXPECT_NEAR(result(strategy, mean), example_losses(model.primary(), data).mean().item<double>(), 1e-12);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                for (const auto& batch : batches) strategy.run(plain_step<TanhNet>, model, optimizer, batch);
              }),
              HasSubstr("this is evaluator 1, which evaluates only"));
}

}  // namespace
}  // namespace lockstep
