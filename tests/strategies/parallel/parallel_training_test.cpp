// Trainings of models that are cut along an axis. Oracle: the same training of the whole model on data
// replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kSteps = compared_steps(20);
constexpr double kClose = 1e-12;

StrategyOptions options_of(const Mesh& mesh) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256}};
}

/// Trains the model under the strategy, and expects what WholeNet became.
template <typename Net>
void expect_training_of(Strategy& strategy, Mirrored<Net>& model, const ParallelRun& whole) {
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (int step = 0; step < kSteps; ++step) {
    const auto results = strategy.run(parallel_step<Net>, model, adam, step);
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const auto at = static_cast<size_t>(step);
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    ASSERT_NEAR(loss, whole.losses[at], kClose) << "step " << step;
    for (const auto& result : results.local_values())
      ASSERT_NEAR(result.norm.template item<double>(), whole.norms[at], kClose) << "step " << step;
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, Net& net) { return difference_of_parts(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

void expect_training(Strategy& strategy, const ParallelRun& whole, double dropout = 0) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    ParallelNet net(replica.axis("tensor"));
    net->dropout = dropout;
    return net;
  });
  expect_training_of(strategy, model, whole);
}

void expect_training_on_shards(Strategy& strategy, const ParallelRun& whole) {
  auto model = strategy.scope([](ReplicaContext& replica) { return SequenceNet(replica.axis("tensor")); });
  expect_training_of(strategy, model, whole);
}

class ParallelTraining : public testing::TestWithParam<std::string> {
 protected:
  Mesh mesh() const { return parse_mesh(GetParam()); }
};

TEST_P(ParallelTraining, EqualsThatOfTheWholeModel) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  EXPECT_EQ(strategy.num_replicas_in_sync(), mesh().num_replicas());
  EXPECT_EQ(strategy.num_ranks(), mesh().size());
  expect_training(strategy, trained_whole(mesh().num_replicas(), kSteps));
}

TEST_P(ParallelTraining, DrawsTheSameDropoutOnTheRanksOfAReplica) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  expect_training(strategy, trained_whole(mesh().num_replicas(), kSteps, 0.25), 0.25);
}

TEST_P(ParallelTraining, EqualsThatOfTheWholeModelOverWorkers) {
  const auto whole = trained_whole(mesh().num_replicas(), kSteps, 0.25);
  const int ranks = mesh().size();
  const std::vector<std::vector<int>> layouts = {std::vector<int>(static_cast<size_t>(ranks), 1),
                                                 {ranks / 2, ranks - ranks / 2}};
  for (const auto& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout.size() << " workers");
    expect_no_worker_failed(run_strategies(
        layout, [&](MultiWorkerMirroredStrategy& strategy) { expect_training(strategy, whole, 0.25); },
        [&](int, WorkerSetUp& set_up) { set_up.options = options_of(mesh()); }));
  }
}

TEST_P(ParallelTraining, OnShardsOfTheSequenceEqualsThatOfTheWholeModel) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  const auto whole = trained_whole(mesh().num_replicas(), kSteps);
  expect_training_on_shards(strategy, whole);
  const int ranks = mesh().size();
  expect_no_worker_failed(run_strategies(
      {ranks / 2, ranks - ranks / 2},
      [&](MultiWorkerMirroredStrategy& workers) { expect_training_on_shards(workers, whole); },
      [&](int, WorkerSetUp& set_up) { set_up.options = options_of(mesh()); }));
}

INSTANTIATE_TEST_SUITE_P(Meshes, ParallelTraining,
                         testing::Values("tensor=2", "tensor=4", "data=2,tensor=2", "tensor=2,data=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

TEST(ParallelTrainingTest, CutLayersBeginWithPartsOfTheWholeLayersValues) {
  MirroredStrategy strategy(cpu_devices(2), options_of({{"tensor", 2}}));
  torch::manual_seed(11);
  auto model = strategy.scope([](ReplicaContext& replica) {
    return ParallelMlp(replica.axis("tensor"), ParallelMlpOptions{.features = 6, .hidden_features = 8});
  });
  torch::manual_seed(11);
  const torch::nn::Linear up(6, 8);
  const torch::nn::Linear down(8, 6);
  for (int rank = 0; rank < 2; ++rank) {
    auto& own = model.local_values()[static_cast<size_t>(rank)];
    EXPECT_TRUE(torch::equal(own->up->weight, up->weight.narrow(0, 4 * rank, 4)));
    EXPECT_TRUE(torch::equal(own->up->bias, up->bias.narrow(0, 4 * rank, 4)));
    EXPECT_TRUE(torch::equal(own->down->weight, down->weight.narrow(1, 4 * rank, 4)));
    EXPECT_TRUE(torch::equal(own->down->bias, down->bias));
  }
}

TEST(ParallelTrainingTest, HiddenDropoutDiffersBetweenTheRanksOfAReplica) {
  MirroredStrategy strategy(cpu_devices(4), options_of({{"data", 2}, {"tensor", 2}}));
  const auto drawn = strategy.run([](ReplicaContext& replica) {
    const auto before = torch::rand({4}, torch::kDouble);
    torch::Tensor own;
    {
      const RankRandom random = replica.rank_random();
      own = torch::rand({4}, torch::kDouble);
    }
    return torch::stack({before, own, torch::rand({4}, torch::kDouble)});
  });
  const auto equal = [&](size_t a, size_t b, int64_t row) {
    return torch::equal(drawn[a][row], drawn[b][row]);
  };
  for (const int64_t row : {0, 2}) {
    EXPECT_TRUE(equal(0, 1, row));
    EXPECT_TRUE(equal(2, 3, row));
    EXPECT_FALSE(equal(0, 2, row));
  }
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < a; ++b) EXPECT_FALSE(equal(a, b, 1)) << a << " " << b;
  }
}

TEST(ParallelTrainingTest, GradScalerSkipsAStepOnAllRanksIfOneRanksPartIsNotFinite) {
  MirroredStrategy strategy(cpu_devices(2), options_of({{"tensor", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  auto scaler = strategy.scope([](ReplicaContext&) { return GradScaler(torch::kCPU, {.init_scale = 1024}); });
  const auto step = [](ReplicaContext& replica, ParallelNet& net, torch::optim::AdamW& optimizer,
                       GradScaler& own, bool is_broken) {
    optimizer.zero_grad();
    const auto before = net->norm->weight.detach().clone();
    const auto [ids, targets] = own_examples(replica, 0);
    const auto loss = net->forward(ids, targets).mean();
    own.scale(loss).backward();
    if (is_broken && replica.axis("tensor").index() == 1) {
      replica.reduce_gradients(optimizer);
      net->up->bias.mutable_grad()[0] = std::numeric_limits<double>::infinity();
    }
    replica.apply_gradients(optimizer, {.scaler = &own});
    own.update();
    return std::pair(torch::equal(before, net->norm->weight.detach()), own.state().scale);
  };
  for (const bool is_broken : {true, false}) {
    const auto results = strategy.run(step, model, adam, scaler, is_broken);
    for (const auto& [is_same, scale] : results.local_values()) {
      EXPECT_EQ(is_same, is_broken);
      EXPECT_EQ(scale, 512);
    }
  }
}

TEST(ParallelTrainingTest, ARankThatThrowsReleasesTheOthersAndTheNextStepIsExact) {
  const auto whole = trained_whole(2, 3);
  MirroredStrategy strategy(cpu_devices(4), options_of({{"data", 2}, {"tensor", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  const auto failing = [](ReplicaContext& replica, ParallelNet& net, torch::optim::AdamW& optimizer) {
    optimizer.zero_grad();
    const auto [ids, targets] = own_examples(replica, 0);
    if (replica.rank() == 3) throw std::runtime_error("rank 3 breaks");
    net->forward(ids, targets).sum().backward();
    replica.apply_gradients(optimizer);
  };
  for (int step = 0; step < 3; ++step) {
    const auto message = message_of<std::runtime_error>([&] { strategy.run(failing, model, adam); });
    EXPECT_THAT(message, HasSubstr("rank 3 breaks"));
    strategy.run(parallel_step<ParallelNet>, model, adam, step);
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, ParallelNet& net) { return difference_of_parts(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

TEST(ParallelTrainingTest, RanksThatSteppedBeforeAnotherFailedAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), options_of({{"tensor", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  std::atomic<bool> has_stepped = false;
  const auto torn = [&](ReplicaContext& replica, ParallelNet& net, torch::optim::AdamW& optimizer) {
    optimizer.zero_grad();
    const auto [ids, targets] = own_examples(replica, 0);
    net->forward(ids, targets).sum().backward();
    if (replica.rank() == 1) {
      has_stepped.wait(false);
      throw std::runtime_error("rank 1 breaks before its step");
    }
    replica.apply_gradients(optimizer);
    has_stepped = true;
    has_stepped.notify_all();
  };
  EXPECT_THROW(strategy.run(torn, model, adam), std::runtime_error);
  EXPECT_THROW(strategy.run(parallel_step<ParallelNet>, model, adam, 0), InconsistentReplicas);
  EXPECT_THROW(strategy.restore_consistency(model, adam), InconsistentReplicas);
}

}  // namespace
}  // namespace lockstep
