// Refusals of a multi-worker strategy, and failures of one worker that reach all workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

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

using MakeModel = std::function<torch::nn::Sequential()>;

/// Both workers name the tensor as each of them has it; `in_...` are regular expressions.
void expect_difference(const MakeModel& first, const MakeModel& second, const std::string& in_first,
                       const std::string& in_second) {
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_first = strategy.cluster_resolver()->rank() == 0;
    strategy.scope([&](ReplicaContext&) { return is_first ? first() : second(); });
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<ClusterError>(error));
    EXPECT_THAT(text_of(error), testing::ContainsRegex("^\\[model\\].* worker 0 \\([^)]+\\) has " + in_first +
                                                       " where worker 1 \\([^)]+\\) has " + in_second + "$"));
  }
}

TEST(MultiWorkerMirroredStrategy, NamesTheFirstTensorThatDiffersInAnyWay) {
  using torch::nn::Linear;
  using torch::nn::Sequential;
  const auto plain = [] { return Sequential(Linear(2, 3), Linear(3, 3)); };
  const auto named = [](const char* first, const char* second) {
    return [=] { return Sequential({{first, Linear(3, 3)}, {second, Linear(3, 3)}}); };
  };
  const auto of_doubles = [&] {
    auto model = plain();
    model->to(torch::kDouble);
    return model;
  };
  const auto frozen = [&] {
    auto model = plain();
    model->parameters()[1].set_requires_grad(false);
    return model;
  };
  expect_difference(plain, of_doubles, "'0.weight' Float \\[3, 2\\], trained",
                    "'0.weight' Double \\[3, 2\\], trained");
  expect_difference(named("a", "b"), named("b", "a"), "'a.weight' .*", "'b.weight' .*");  // another order
  expect_difference(named("a", "b"), named("a", "c"), "'b.weight' .*", "'c.weight' .*");
  expect_difference(
      plain, [] { return Sequential(Linear(2, 3)); }, "'1.weight' Float \\[3, 3\\], trained", "none");
  expect_difference([] { return Sequential(Linear(2, 3)); }, plain, "none",
                    "'1.weight' Float \\[3, 3\\], trained");
  expect_difference(plain, frozen, "'0.bias' Float \\[3\\], trained", "'0.bias' Float \\[3\\]");
}

/// Returns what the workers throw if worker 1's optimizer has other options.
template <typename Optimizer, typename Options>
std::vector<std::exception_ptr> errors_of_options(const Options& first, const Options& second) {
  return run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 3); });
    const bool is_first = strategy.cluster_resolver()->rank() == 0;
    strategy.scope([&](ReplicaContext& replica) {
      return Optimizer(model[replica]->parameters(), is_first ? first : second);
    });
  });
}

TEST(MultiWorkerMirroredStrategy, NamesTheOptimizersOptionThatDiffers) {
  using torch::optim::Adam;
  using torch::optim::AdamOptions;
  using torch::optim::SGD;
  using torch::optim::SGDOptions;
  const auto expect = [](const std::vector<std::exception_ptr>& errors, const std::string& in_first,
                         const std::string& in_second) {
    for (const auto& error : errors) {
      EXPECT_TRUE(is_a<ClusterError>(error));
      EXPECT_THAT(text_of(error), AllOf(HasSubstr("[optimizer]"), HasSubstr(in_first + " of group 0 where"),
                                        testing::EndsWith(in_second + " of group 0")));
    }
  };
  expect(errors_of_options<SGD>(SGDOptions(0.1).momentum(0.9), SGDOptions(0.1)), "momentum 0.9",
         "momentum 0");
  expect(errors_of_options<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true), SGDOptions(0.1).momentum(0.9)),
         "nesterov True", "nesterov False");
  expect(errors_of_options<Adam>(AdamOptions(0.1), AdamOptions(0.1).betas({0.9, 0.99})), "betas (0.9, 0.999)",
         "betas (0.9, 0.99)");
  // Numbers are printed with all their digits.
  expect(errors_of_options<Adam>(AdamOptions(0.1), AdamOptions(0.1000000001)), "learning rate 0.1",
         "learning rate 0.1000000001");
  expect_no_worker_failed(
      errors_of_options<Adam>(AdamOptions(0.1).betas({0.8, 0.9}), AdamOptions(0.1).betas({0.8, 0.9})));
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
  // The shapes are equal: only the parameter that a gradient belongs to differs.
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

/// A module whose output depends on a count that is not a registered tensor, and that a copy does not get.
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
