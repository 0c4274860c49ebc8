// What a multi-worker strategy refuses, and what all workers learn of a failure in one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "lockstep/datasets/tensor_dataset.h"
#include "lockstep/tests/strategies/message_of.h"
#include "lockstep/tests/strategies/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MultiWorkerMirroredStrategy, NamesTheTensorAndBothWorkersWhereModelsDiffer) {
  const auto errors = run_strategies({1, 1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const int outputs = strategy.cluster_resolver()->rank() == 2 ? 4 : 3;
    strategy.scope([&](ReplicaContext&) { return torch::nn::Linear(2, outputs); });
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<ClusterError>(error));
    EXPECT_THAT(text_of(error),
                AllOf(HasSubstr("[model]"), HasSubstr("'weight' Float [3, 2]"),
                      HasSubstr("'weight' Float [4, 2]"), HasSubstr("worker 0 ("), HasSubstr("worker 2 (")));
  }
}

TEST(MultiWorkerMirroredStrategy, NamesWhatDiffersOfOptimizersAndDatasets) {
  auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 3); });
    const double rate = strategy.cluster_resolver()->rank() == 0 ? 0.1 : 0.2;
    strategy.scope(
        [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), rate); });
  });
  for (const auto& error : errors) {
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("[optimizer]"), HasSubstr("learning rate 0.1"),
                                      HasSubstr("learning rate 0.2")));
  }
  // Of equal shapes: which of them a gradient belongs to is all that differs.
  errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext&) {
      return torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
    });
    strategy.scope([&](ReplicaContext& replica) {
      auto parameters = model[replica]->parameters();
      if (strategy.cluster_resolver()->rank() == 1) std::swap(parameters[0], parameters[2]);
      return torch::optim::SGD(parameters, 0.1);
    });
  });
  for (const auto& error : errors) {
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("[optimizer]"), HasSubstr("'0.weight' as number 0"),
                                      HasSubstr("'1.weight' as number 0")));
  }
  errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 3); });
    if (strategy.cluster_resolver()->rank() == 0) {
      strategy.scope(
          [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
    } else {
      strategy.scope(
          [&](ReplicaContext& replica) { return torch::optim::Adam(model[replica]->parameters(), 0.1); });
    }
  });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("torch::optim::SGD"), HasSubstr("torch::optim::Adam")));
  errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const int64_t count = strategy.cluster_resolver()->rank() == 0 ? 10 : 12;
    strategy.distribute_dataset(TensorDataset(torch::zeros({count, 1}), torch::zeros({count})),
                                {.global_batch_size = 4});
  });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("out of 10 examples"), HasSubstr("out of 12 examples")));
}

TEST(MultiWorkerMirroredStrategy, RefusesWorkersOfDifferentOptions) {
  const auto errors = run_strategies(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int rank, WorkerSetUp& set_up) { set_up.options.communication.bytes_per_pack = 1000 + rank; });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<ClusterError>(error));
    EXPECT_THAT(text_of(error),
                AllOf(HasSubstr("same communication"), HasSubstr("1000 bytes"), HasSubstr("1001 bytes"),
                      HasSubstr("worker 0 ("), HasSubstr("worker 1 (")));
  }
}

/// Its output depends on a count that is no registered tensor and that a copy does not get.
struct CountingImpl : torch::nn::Cloneable<CountingImpl> {
  void reset() override { calls = 0; }
  torch::Tensor forward(const torch::Tensor& x) { return x * static_cast<double>(++calls); }
  int calls = 0;
};
TORCH_MODULE(Counting);

TEST(MultiWorkerMirroredStrategy, NumbersReplicasOverAllWorkersInItsErrors) {
  auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    Counting counting;
    counting->forward(torch::ones({2}));
    strategy.mirror(counting, {.probe = torch::ones({2})});
  });
  for (const size_t worker : {0, 1})
    EXPECT_THAT(text_of(errors[worker]),
                HasSubstr("replica " + std::to_string(worker) + "'s copy gives another output"));
  errors = run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    strategy.scope(
        [](ReplicaContext& replica) { return torch::nn::Linear(2, replica.replica_id() < 2 ? 3 : 4); });
  });
  EXPECT_THAT(text_of(errors[1]), AllOf(HasSubstr("as on replica 1"), HasSubstr("on replica 2")));
  errors = run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 3); });
    strategy.scope([&](ReplicaContext&) { return torch::optim::SGD(model.primary()->parameters(), 0.1); });
  });
  EXPECT_THAT(text_of(errors[1]), AllOf(HasSubstr("replica 2's optimizer"), HasSubstr("of replica 1")));
}

TEST(MultiWorkerMirroredStrategy, TellsAllWorkersWhatHasFailedInOne) {
  const auto errors = run_strategies({2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([](ReplicaContext& replica) {
      if (replica.replica_id() == 2) throw std::runtime_error("the user's own error");
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    });
  });
  EXPECT_TRUE(is_a<PeerLost>(errors[0]));
  EXPECT_THAT(text_of(errors[0]), AllOf(HasSubstr("worker 1 ("), HasSubstr("replica 2 failed"),
                                        HasSubstr("the user's own error")));
  EXPECT_EQ(text_of(errors[1]), "the user's own error");
}

}  // namespace
}  // namespace lockstep
