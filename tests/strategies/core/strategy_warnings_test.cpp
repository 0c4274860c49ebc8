// Usual mistakes that a strategy warns about, and similar programs that are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::nn::Linear;
using torch::optim::SGD;

class Warnings : public ::testing::Test {
 protected:
  /// Returns what `call` writes to stderr. Replicas warn in their own threads.
  static std::string said_by(const std::function<void()>& call) {
    ::testing::internal::CaptureStderr();
    call();
    return ::testing::internal::GetCapturedStderr();
  }

  using Loss = std::function<torch::Tensor(ReplicaContext&, Linear&)>;

  /// Trains twice with a loss, which gets its replica's model.
  void train(const Loss& loss, MirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext&) { return Linear(2, 3); });
    auto optimizer =
        strategy.scope([&](ReplicaContext& replica) { return SGD(model[replica]->parameters(), 0.1); });
    for (int step = 0; step < 2; ++step) {
      strategy.run(
          [&](ReplicaContext& replica, Linear& own, SGD& sgd) {
            sgd.zero_grad();
            loss(replica, own).backward();
            replica.apply_gradients(sgd);
          },
          model, optimizer);
    }
  }
  std::string said_in_training(const Loss& loss, int num_replicas = 2) {
    MirroredStrategy strategy(cpu_devices(num_replicas), {.intra_op_threads = 1});
    return said_by([&] { train(loss, strategy); });
  }

  static torch::Tensor logits(Linear& model) { return model->forward(torch::ones({4, 2})); }
  const torch::Tensor classes_ = torch::zeros({4}, torch::kLong);
};

int count_in(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(Warnings, ALossThatIsAMeanOverTheShardIsToldOnceHowToComputeIt) {
  namespace F = torch::nn::functional;
  std::vector<Loss> means{
      [&](ReplicaContext&, Linear& own) { return logits(own).mean(); },
      [&](ReplicaContext&, Linear& own) { return logits(own).mean() + logits(own).square().mean(); }};
#ifdef NDEBUG  // else LibTorch does not let an observer see the arguments of its losses
  means.emplace_back([&](ReplicaContext&, Linear& own) { return F::cross_entropy(logits(own), classes_); });
  means.emplace_back([&](ReplicaContext&, Linear& own) {
    return F::mse_loss(logits(own), torch::ones({4, 3}));
  });
  means.emplace_back([&](ReplicaContext&, Linear& own) {
    return F::smooth_l1_loss(logits(own), torch::ones({4, 3}));
  });
#endif
  for (const auto& mean : means) {
    const auto said = said_in_training(mean);
    EXPECT_THAT(
        said, AllOf(HasSubstr("[MirroredStrategy] the loss is a mean over one replica's shard"),
                    HasSubstr("compute_average_loss(replica, losses)"), HasSubstr("LOCKSTEP_WARNINGS=off")));
    EXPECT_EQ(count_in(said, "the loss is a mean"), 1);
    EXPECT_THAT(said_in_training(mean, /*num_replicas=*/1), IsEmpty()) << "the mean of one shard is the mean";
  }
}

TEST_F(Warnings, AMeanAfterALossThatAddsUpIsToldIfItHasAnotherOptimizer) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto sum = [&](ReplicaContext&, Linear& own) { return logits(own).sum(); };
  EXPECT_THAT(said_by([&] {
                for (int i = 0; i < 10; ++i) train(sum, strategy);
              }),
              IsEmpty());
  const auto mean = [&](ReplicaContext&, Linear& own) { return logits(own).mean(); };
  const auto said = said_by([&] {
    train(mean, strategy);
    train(mean, strategy);
  });
  EXPECT_EQ(count_in(said, "the loss is a mean"), 1);
}

TEST_F(Warnings, LossesThatAddUpOverTheReplicasAreRight) {
  namespace F = torch::nn::functional;
  const std::vector<Loss> right{
      [&](ReplicaContext& replica, Linear& own) {
        return compute_average_loss(
            replica,
            F::cross_entropy(logits(own), classes_, F::CrossEntropyFuncOptions().reduction(torch::kNone)));
      },
      [&](ReplicaContext&, Linear& own) {
        return F::cross_entropy(logits(own), classes_, F::CrossEntropyFuncOptions().reduction(torch::kSum));
      },
      [&](ReplicaContext& replica, Linear& own) {
        return F::cross_entropy(logits(own), classes_) / replica.num_replicas();
      },
      [&](ReplicaContext&, Linear& own) { return 0.5 * logits(own).mean(); },
      [&](ReplicaContext&, Linear& own) { return logits(own).sum(); }};
  for (const auto& loss : right) EXPECT_THAT(said_in_training(loss), IsEmpty());
}

TEST_F(Warnings, AStepWithoutAnyGradientIsTold) {
  Linear captured(2, 3);
  for (const int num_replicas : {1, 2}) {
    const auto said =
        said_in_training([&](ReplicaContext&, Linear&) { return logits(captured).sum(); }, num_replicas);
    EXPECT_THAT(said, HasSubstr("apply_gradients() found no gradient for any parameter of the optimizer"));
    EXPECT_THAT(said, HasSubstr("not with one that it captures"));
    EXPECT_EQ(count_in(said, "found no gradient"), 1);
  }
  const auto bias_alone = [](ReplicaContext&, Linear& own) { return own->bias.sum(); };
  EXPECT_THAT(said_in_training(bias_alone), IsEmpty()) << "another parameter has a gradient";
}

TEST_F(Warnings, AnEvaluationInTrainingModeIsToldIfItMatters) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto plain = strategy.scope([](ReplicaContext&) { return Linear(2, 3); });
  auto norm = strategy.scope([](ReplicaContext&) { return torch::nn::BatchNorm1d(2); });
  const auto evaluate = [](auto& model) {
    return [&model](MirroredStrategy& with) {
      const torch::NoGradGuard no_grad;
      with.run([](ReplicaContext&, auto& own) { return own->forward(torch::ones({4, 2})); }, model);
    };
  };
  EXPECT_THAT(said_by([&] { evaluate(plain)(strategy); }), IsEmpty()) << "it has one mode only";
  norm.eval();
  EXPECT_THAT(said_by([&] { evaluate(norm)(strategy); }), IsEmpty());
  norm.train();
  EXPECT_THAT(said_by([&] {
                strategy.run([](ReplicaContext&, auto& own) { own->forward(torch::ones({4, 2})); }, norm);
              }),
              IsEmpty())
      << "gradients may follow";
  const auto said = said_by([&] {
    evaluate(norm)(strategy);
    evaluate(norm)(strategy);
  });
  EXPECT_THAT(said, AllOf(HasSubstr("a run without gradients used a model in training mode"),
                          HasSubstr("BatchNorm1d"), HasSubstr("model.eval()")));
  EXPECT_EQ(count_in(said, "in training mode"), 1);
}

TEST_F(Warnings, EpochsInTheSameOrderAreToldInTheSecondOne) {
  const auto epochs = [&](const DistributeOptions& options, int num_epochs, bool trains,
                          std::optional<int64_t> taken = std::nullopt) {
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
    auto model = strategy.scope([](ReplicaContext&) { return Linear(2, 3); });
    auto optimizer =
        strategy.scope([&](ReplicaContext& replica) { return SGD(model[replica]->parameters(), 0.1); });
    auto batches =
        strategy.distribute_dataset(TensorDataset(torch::ones({8, 2}), torch::ones({8, 3})), options);
    if (taken) batches = batches.take(*taken);
    return said_by([&] {
      for (int epoch = 0; epoch < num_epochs; ++epoch) {
        for (const auto& batch : batches) {
          strategy.run(
              [&](ReplicaContext& replica, Linear& own, SGD& sgd, const Example& shard) {
                if (!trains) return;
                sgd.zero_grad();
                compute_average_loss(replica, (own->forward(shard.data) - shard.target).square().sum(1))
                    .backward();
                replica.apply_gradients(sgd);
              },
              model, optimizer, batch);
        }
      }
    });
  };
  EXPECT_THAT(epochs({.global_batch_size = 4}, 1, true), IsEmpty());
  EXPECT_THAT(epochs({.global_batch_size = 4, .shuffle_seed = 1}, 2, true), IsEmpty());
  EXPECT_THAT(epochs({.global_batch_size = 8}, 2, true), IsEmpty()) << "one batch has no order";
  EXPECT_THAT(epochs({.global_batch_size = 4}, 2, true, 1), IsEmpty()) << "one batch again and again";
  EXPECT_THAT(epochs({.global_batch_size = 2}, 2, true, 2), HasSubstr("the same order in every epoch"));
  EXPECT_THAT(epochs({.global_batch_size = 4}, 2, false), IsEmpty()) << "an evaluation";
  const auto said = epochs({.global_batch_size = 4}, 3, true);
  EXPECT_THAT(said, AllOf(HasSubstr("the same order in every epoch"), HasSubstr(".shuffle_seed")));
  EXPECT_EQ(count_in(said, "the same order"), 1);
}

TEST_F(Warnings, TheProcesssEnvironmentSilencesThem) {
  ::setenv("LOCKSTEP_WARNINGS", "off",
           1);  // NOLINT(concurrency-mt-unsafe): no other thread reads variables here
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  ::unsetenv("LOCKSTEP_WARNINGS");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(
      said_by([&] { train([](ReplicaContext&, Linear& own) { return logits(own).mean(); }, strategy); }),
      IsEmpty());
}

}  // namespace
}  // namespace lockstep
