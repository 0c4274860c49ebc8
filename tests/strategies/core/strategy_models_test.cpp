// Meshes with axes along which models are cut: replicas, batches, sums and results of several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/number_stream.h"
#include "lockstep/tests/support/numbered_dataset.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/metrics/metrics.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

StrategyOptions models_options_of(const Mesh& mesh) {
  return {.intra_op_threads = 1, .seed = 1, .mesh = mesh};
}

/// Calls `work` with a strategy of the mesh in one process, and of two workers.
void with_strategies(const Mesh& mesh, const std::function<void(Strategy&)>& work) {
  {
    SCOPED_TRACE("one process, " + mesh.str());
    MirroredStrategy strategy(cpu_devices(mesh.size()), models_options_of(mesh));
    work(strategy);
  }
  SCOPED_TRACE("two workers, " + mesh.str());
  expect_no_worker_failed(run_strategies(
      {mesh.size() / 2, mesh.size() / 2}, [&](MultiWorkerMirroredStrategy& strategy) { work(strategy); },
      [&](int, WorkerSetUp& set_up) { set_up.options = models_options_of(mesh); }));
}

const std::vector<Mesh> kMeshes{Mesh{{"tensor", 2}}, Mesh{{"data", 2}, {"tensor", 2}},
                                Mesh{{"tensor", 2}, {"data", 2}}, Mesh{{"a", 2}, {"tensor", 2}, {"b", 2}},
                                Mesh{{"data", 2}, {"tensor", 2, AxisRole::kContext}}};

TEST(StrategyModels, RanksOfAReplicaShareItsNumberAndItsCollectivesCountItOnce) {
  for (const Mesh& mesh : kMeshes) {
    with_strategies(mesh, [&](Strategy& strategy) {
      const int replicas = mesh.size() / 2;
      EXPECT_EQ(strategy.num_replicas_in_sync(), replicas);
      EXPECT_EQ(strategy.num_ranks(), mesh.size());
      const auto seen = strategy.run([&](ReplicaContext& replica) {
        EXPECT_EQ(replica.num_replicas(), replicas);
        EXPECT_EQ(replica.replica_id(), mesh.replica_of(replica.rank()));
        const auto own = torch::full({1}, replica.replica_id(), torch::kLong);
        EXPECT_TRUE(torch::equal(replica.all_gather(own), torch::arange(replicas)));
        EXPECT_EQ(replica.sum_on_host(1), replicas);
        const auto of_tensor =
            replica.axis("tensor").all_gather(torch::full({1}, replica.rank(), torch::kLong));
        EXPECT_EQ(of_tensor.size(0), 2);
        EXPECT_EQ(of_tensor[replica.axis("tensor").index()].item<int64_t>(), replica.rank());
        return replica.rank();
      });
      for (size_t local = 0; local < seen.local_values().size(); ++local) {
        EXPECT_EQ(seen[local], strategy.first_local_replica() + static_cast<int>(local));
        EXPECT_EQ(strategy.replica_of(local), mesh.replica_of(seen[local]));
      }
    });
  }
}

TEST(StrategyModels, ReduceAndGatherTakeTheFirstRankOfEachReplica) {
  const Mesh mesh{{"a", 2}, {"tensor", 2}, {"b", 2}};
  with_strategies(mesh, [&](Strategy& strategy) {
    // The second rank of a replica has another value, which must not count.
    const auto value = [](ReplicaContext& replica) {
      return replica.axis("tensor").index() == 0 ? 1.0 + replica.replica_id() : 1000.0;
    };
    const auto tensors = strategy.run(
        [&](ReplicaContext& replica) { return torch::full({2}, value(replica), torch::kDouble); });
    const auto numbers = strategy.run([&](ReplicaContext& replica) { return value(replica); });
    EXPECT_TRUE(strategy.reduce(ReduceOp::kSum, tensors).eq(10).all().item<bool>());
    EXPECT_TRUE(strategy.reduce(ReduceOp::kMean, tensors).eq(2.5).all().item<bool>());
    EXPECT_EQ(strategy.reduce(ReduceOp::kMean, tensors, 0).item<double>(), 2.5);
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, numbers), 10);
    EXPECT_EQ(strategy.reduce(ReduceOp::kMean, numbers), 2.5);
    EXPECT_TRUE(torch::equal(strategy.gather(tensors),
                             torch::tensor({1., 1., 2., 2., 3., 3., 4., 4.}, torch::kDouble)));
    const auto pairs = strategy.run([&](ReplicaContext& replica) {
      return std::vector<torch::Tensor>{torch::full({1}, value(replica), torch::kDouble)};
    });
    EXPECT_EQ(strategy.reduce(ReduceOp::kMean, pairs)[0].item<double>(), 2.5);
    EXPECT_EQ(strategy.gather(pairs)[0].size(0), 4);
    const auto reduced = strategy.extended().reduce_to(ReduceOp::kSum, tensors, {"cpu:0"});
    EXPECT_TRUE(reduced.at(0).eq(10).all().item<bool>());
  });
}

TEST(StrategyModels, MetricsCountEachReplicaOnce) {
  with_strategies({{"data", 2}, {"tensor", 2}}, [](Strategy& strategy) {
    auto sums = strategy.scope([](ReplicaContext&) { return Mean(); });
    strategy.run(
        [](ReplicaContext& replica, Mean& mean) {
          // Replica 1 has twice as many examples.
          mean.update(torch::full({1 + replica.replica_id()}, replica.replica_id() + 1.0, torch::kDouble));
        },
        sums);
    EXPECT_NEAR(result(strategy, sums), 5.0 / 3, 1e-12);
  });
}

TEST(StrategyModels, RanksOfAReplicaGetItsShardOfTheBatch) {
  for (const Mesh& mesh : kMeshes) {
    with_strategies(mesh, [&](Strategy& strategy) {
      const int replicas = mesh.size() / 2;
      auto batches = strategy.distribute_dataset(numbered_dataset(14), {.global_batch_size = 8});
      // The same batches on data replicas alone.
      MirroredStrategy plain(cpu_devices(replicas), {.intra_op_threads = 1});
      auto expected_batches = plain.distribute_dataset(numbered_dataset(14), {.global_batch_size = 8});
      const auto expected = epoch_of(expected_batches);
      size_t step = 0;
      for (const auto& batch : batches) {
        const auto shards = shards_of(batch);
        for (size_t local = 0; local < shards.size(); ++local)
          EXPECT_EQ(shards[local], expected[step][static_cast<size_t>(strategy.replica_of(local))]);
        strategy.run([&](ReplicaContext& replica,
                         const Example&) { EXPECT_EQ(replica.global_batch_size(), step == 0 ? 8 : 6); },
                     batch);
        ++step;
      }
      EXPECT_EQ(step, expected.size());
    });
  }
}

TEST(StrategyModels, RanksOfAReplicaGetTheSamePartOfAStream) {
  const Mesh mesh{{"data", 2}, {"tensor", 2}};
  with_strategies(mesh, [&](Strategy& strategy) {
    for (const auto policy : {AutoShardPolicy::kData, AutoShardPolicy::kOff}) {
      auto batches = strategy.distribute_dataset(
          [&](const InputContext& context) {
            const int64_t first = context.input_pipeline_id * 100;
            return std::make_shared<NumberStream>(numbers_from(first, 8));
          },
          DistributeStreamOptions{.global_batch_size = 4, .auto_shard = policy});
      for (const auto& batch : batches) {
        strategy.run(
            [](ReplicaContext& replica, const Example& example) {
              EXPECT_EQ(example.target.size(0), 2);
              EXPECT_EQ(replica.global_batch_size(), 4);
              const auto both = replica.axis("tensor").all_gather(example.target);
              EXPECT_TRUE(torch::equal(both.narrow(0, 0, 2), both.narrow(0, 2, 2)));
              const auto all = std::get<0>(torch::sort(replica.all_gather(example.target)));
              EXPECT_EQ((all.diff() > 0).sum().item<int64_t>(), 3);
            },
            batch);
      }
    }
  });
}

TEST(StrategyModels, AStreamOfEachWorkerNeedsWholeReplicas) {
  const auto errors = run_strategies(
      {1, 1},
      [](MultiWorkerMirroredStrategy& strategy) {
        strategy.distribute_datasets_from_function([](const InputContext&) {
          return [] { return std::optional<torch::Tensor>(torch::zeros({2})); };
        });
      },
      [](int, WorkerSetUp& set_up) {
        set_up.options = models_options_of({{"tensor", 2}});
      });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error),
                AllOf(HasSubstr("ranks of a replica in one process"), HasSubstr("auto_shard data")));
}

TEST(StrategyModels, GradientsAreSummedOverDataAxesOnly) {
  with_strategies({{"data", 2}, {"tensor", 2}}, [](Strategy& strategy) {
    auto weights = strategy.scope([](ReplicaContext&) { return torch::ones({3}, torch::requires_grad()); });
    auto sgd =
        strategy.scope([&](ReplicaContext& replica) { return torch::optim::SGD({weights[replica]}, 0.5); });
    strategy.run(
        [](ReplicaContext& replica, torch::Tensor& weight, torch::optim::SGD& optimizer) {
          (weight * (1 + replica.replica_id())).sum().backward();
          replica.apply_gradients(optimizer);
        },
        weights, sgd);
    for (const auto& weight : weights.local_values())
      EXPECT_TRUE(weight.detach().eq(1 - 0.5 * (1 + 2)).all().item<bool>()) << weight;
  });
}

TEST(StrategyModels, GradientsAreSummedOverContextAxesToo) {
  const Mesh mesh{{"data", 2}, {"context", 2}, {"tensor", 2}};
  with_strategies(mesh, [](Strategy& strategy) {
    EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
    auto weights = strategy.scope([](ReplicaContext&) { return torch::ones({3}, torch::requires_grad()); });
    auto sgd =
        strategy.scope([&](ReplicaContext& replica) { return torch::optim::SGD({weights[replica]}, 0.5); });
    strategy.run(
        [](ReplicaContext& replica, torch::Tensor& weight, torch::optim::SGD& optimizer) {
          const int part = replica.axis("context").index() == 0 ? 1 : 10;
          (weight * (part * (1 + replica.replica_id()))).sum().backward();
          replica.apply_gradients(optimizer);
        },
        weights, sgd);
    for (const auto& weight : weights.local_values())
      EXPECT_TRUE(weight.detach().eq(1 - 0.5 * 11 * (1 + 2)).all().item<bool>()) << weight;
  });
}

/// Counts examples, and keeps a number of each replica.
struct CountsImpl : torch::nn::Module, AggregatesBuffers {
  BufferAggregation buffer_aggregation(const std::string& name) const override {
    return name == "seen" ? BufferAggregation::kSum : BufferAggregation::kMean;
  }
  torch::Tensor seen = register_buffer("seen", torch::full({}, 5, torch::kLong));
  torch::Tensor mean = register_buffer("mean", torch::zeros({1}));
};
TORCH_MODULE(Counts);

TEST(StrategyModels, BuffersAreCombinedOverReplicasNotOverTheirRanks) {
  for (const Mesh& mesh : kMeshes) {
    with_strategies(mesh, [&](Strategy& strategy) {
      auto counts = strategy.scope([](ReplicaContext&) { return Counts(); });
      const int replicas = mesh.size() / 2;
      for (int round = 1; round <= 2; ++round) {
        strategy.run(
            [](ReplicaContext& replica, Counts& own) {
              own->seen += 10 + replica.replica_id();
              own->mean.fill_(replica.axis("tensor").index() == 0 ? replica.replica_id() : 1000);
            },
            counts);
        counts.eval();
        const int64_t of_round = 10 * replicas + replicas * (replicas - 1) / 2;
        for (size_t local = 0; local < counts.local_values().size(); ++local) {
          const auto& own = counts[local];
          const bool is_first = strategy.first_local_replica() + static_cast<int>(local) == 0;
          EXPECT_EQ(own->seen.item<int64_t>(), is_first ? 5 + round * of_round : 0);
          EXPECT_EQ(own->mean.item<float>(), 0.5F * static_cast<float>(replicas - 1));
        }
      }
    });
  }
}

/// A module with a parameter that is cut along "tensor".
struct CutImpl : torch::nn::Module {
  explicit CutImpl(const ReplicaAxis& axis) {
    weight = register_parameter("weight", torch::ones({2}));
    mark_shard(weight, {.name = "weight",
                        .sizes = {4},
                        .strides = {1},
                        .offset = 2 * axis.index(),
                        .length = 2,
                        .axis = axis.name(),
                        .dim = 0});
  }
  torch::Tensor weight;
};
TORCH_MODULE(Cut);

TEST(StrategyModels, OptionsThatDoNotFitAreRefused) {
  const Mesh mesh{{"data", 2}, {"tensor", 2}};
  MirroredStrategy strategy(cpu_devices(4), models_options_of(mesh));
  auto cut = strategy.scope([](ReplicaContext& replica) { return Cut(replica.axis("tensor")); });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope(
                    [&](ReplicaContext& replica) { return torch::optim::LBFGS(cut[replica]->parameters()); });
              }),
              AllOf(HasSubstr("elementwise"), HasSubstr("LBFGS")));
}

TEST(StrategyModels, DescribeNamesTheRanksOfAReplica) {
  MirroredStrategy strategy(cpu_devices(4), models_options_of({{"data", 2}, {"tensor", 2}}));
  EXPECT_THAT(strategy.describe(),
              AllOf(HasSubstr("2 replicas of 2 ranks"), HasSubstr("mesh data=2,tensor=2")));
}

}  // namespace
}  // namespace lockstep
