// Trainings with several gradient buckets that continue in another process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

/// Uses its layers in the reverse order of their registration, so that gradients arrive in another order than
/// they are packed in at first.
struct BackToFrontNetImpl : torch::nn::Module {
  BackToFrontNetImpl() {
    third = register_module("third", torch::nn::Linear(7, 3));
    second = register_module("second", torch::nn::Linear(11, 7));
    first = register_module("first", torch::nn::Linear(6, 11));
    // Not drawn: workers in threads share the process's generator.
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(torch::linspace(-1, 1, parameter.numel()).sin().reshape(parameter.sizes()));
    to(torch::kFloat);
  }
  torch::Tensor forward(const torch::Tensor& x) { return third(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(BackToFrontNet);

torch::Tensor shard_of_step(int64_t step, int replica) {
  return torch::linspace(-2, 2, 24)
      .mul(1.7 + static_cast<double>(step) + 0.31 * replica)
      .cos()
      .reshape({4, 6});
}

/// Trains from where `from` left off (empty: the start) to `last_step`, saves to `to`, and returns the
/// parameters.
std::vector<torch::Tensor> train_back_to_front(MultiWorkerMirroredStrategy& strategy, const std::string& from,
                                               int64_t last_step, const std::string& to) {
  auto model = strategy.scope([](ReplicaContext&) { return BackToFrontNet(); });
  auto optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
  TrainingState state(strategy);
  state.add_model(model);
  state.add_optimizer("sgd", optimizer);
  int64_t step = from.empty() ? 0 : state.load(from).step;
  for (; step < last_step; ++step) {
    strategy.run([&](ReplicaContext& replica) {
      auto& own = optimizer[replica];
      own.zero_grad();
      const auto shard = shard_of_step(step, replica.replica_id()).to(replica.device());
      model[replica]->forward(shard).square().mean().backward();
      replica.apply_gradients(own);
    });
  }
  state.save(to, {.step = step});
  return values_of(model.primary()->parameters());
}

std::vector<std::vector<torch::Tensor>> train_three_workers(const std::string& from, int64_t last_step,
                                                            const std::string& to) {
  std::vector<std::vector<torch::Tensor>> results(3);
  expect_no_worker_failed(run_strategies(
      {1, 1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
        results[rank] = train_back_to_front(strategy, from, last_step, to + std::to_string(rank));
      },
      [](int, WorkerSetUp& set_up) {
        set_up.options.buckets = {.first_bucket_bytes = 300, .bucket_bytes = 400};
      }));
  return results;
}

TEST(GradientOrderTest, ThreeWorkersGoOnBitByBitWithSeveralBuckets) {
  constexpr int64_t kSteps = 6;
  const TemporaryFolder folder;
  const auto whole = train_three_workers("", kSteps, folder.file("whole"));
  for (int64_t step = 1; step < kSteps; ++step) {
    const std::string part = folder.file("part" + std::to_string(step) + "-");
    train_three_workers("", step, part);
    const auto resumed = train_three_workers(part + "0", kSteps, folder.file("resumed"));
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(bit_equal(resumed[rank], whole[rank])) << "worker " << rank << ", resumed after " << step;
  }
}

/// A net and its optimizer on two replicas.
class GradientOrderOnReplicas : public ::testing::Test {
 protected:
  void step() {
    strategy_.run([&](ReplicaContext& replica) {
      auto& own = optimizer_[replica];
      own.zero_grad();
      const auto shard = shard_of_step(0, replica.replica_id()).to(replica.device());
      model_[replica]->forward(shard).square().mean().backward();
      replica.apply_gradients(own);
    });
  }

  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Mirrored<BackToFrontNet> model_ = strategy_.scope([](ReplicaContext&) { return BackToFrontNet(); });
  Mirrored<torch::optim::SGD> optimizer_ = strategy_.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model_[replica]->parameters(), 0.1); });
};

TEST_F(GradientOrderOnReplicas, IsKnownAfterTheFirstStep) {
  auto extended = strategy_.extended();
  EXPECT_THAT(extended.gradient_order(optimizer_.primary()), IsEmpty());
  step();
  auto order = extended.gradient_order(optimizer_.primary());
  // Registered as third, second, first; backward reaches the third layer first, with both its parameters.
  ASSERT_EQ(order.size(), 6U);
  for (const size_t layer : {0U, 1U, 2U}) {
    EXPECT_EQ(order[2 * layer] / 2, layer);
    EXPECT_EQ(order[2 * layer + 1] / 2, layer);
  }
}

TEST_F(GradientOrderOnReplicas, IsTakenForTheNextStep) {
  auto extended = strategy_.extended();
  extended.set_gradient_order(optimizer_.primary(), {2, 0, 1, 5, 4, 3});
  step();
  EXPECT_THAT(extended.gradient_order(optimizer_.primary()), ElementsAre(2, 0, 1, 5, 4, 3));
  EXPECT_THAT(strategy_.optimizer_group(optimizer_.primary())->reducer(1)->order(),
              ElementsAre(2, 0, 1, 5, 4, 3));
}

TEST_F(GradientOrderOnReplicas, ThatIsNoneOfTheParametersIsRefused) {
  for (const std::vector<int64_t>& order : std::vector<std::vector<int64_t>>{
           {}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 4}, {0, 1, 2, 3, 4, 6}, {0, 1, 2, 3, 4, -1}})
    EXPECT_THROW(strategy_.extended().set_gradient_order(optimizer_.primary(), order), InvalidArgument);
}

TEST_F(GradientOrderOnReplicas, ThatIsNoneIsNamedInAStateFile) {
  const TemporaryFolder folder;
  TrainingState state(strategy_);
  state.add_model(model_);
  state.add_optimizer("sgd", optimizer_);
  step();
  auto saved = state.snapshot({.step = 1});
  for (auto& entry : saved.entries) {
    if (std::get<std::string>(entry.key) != "gradient_orders") continue;
    StateValue::Dict orders;
    orders.add("sgd", StateValue::List{{int64_t{0}, int64_t{0}}});
    entry.value = std::move(orders);
  }
  EXPECT_THAT([&] { state.restore(StateValue(saved), "file"); },
              ::testing::ThrowsMessage<CheckpointError>(
                  HasSubstr("file: state['gradient_orders']['sgd']: expected an order of the optimizer's "
                            "parameters, but got")));
}

}  // namespace
}  // namespace lockstep
