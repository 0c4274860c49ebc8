// recompute() in replicas: collectives in the function, sums of gradients that overlap with backward, and the
// replica's random stream.
#include <ATen/core/Generator.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/internal/replica_random.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/strategies/nn/recompute_cases.h"
#include "lockstep/tests/support/reducers.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

constexpr int kSteps = 3;

/// The parameters of both replicas after some steps with differentiable collectives between the blocks, which
/// the recomputed parts include.
std::vector<torch::Tensor> trained(Recomputes recomputes) {
  torch::manual_seed(8);
  MirroredStrategy strategy(
      cpu_devices(2), {.intra_op_threads = 1, .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128}});
  auto model = strategy.scope([&](ReplicaContext&) { return StackOfBlocks(recomputes); });
  auto optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.01); });
  const auto inputs = torch::randn({2, 5, 4}, torch::kDouble);
  const auto step = [&](ReplicaContext& replica, StackOfBlocks& stack, torch::optim::SGD& sgd) {
    sgd.zero_grad();
    const auto mixed = [&](const torch::Tensor& x) {
      const auto y = stack->forward(x + replica.all_reduce(ReduceOp::kMean, x).tanh());
      return replica.reduce_scatter(ReduceOp::kSum, replica.all_gather(y.sin(), 0), 0);
    };
    auto x = inputs[replica.replica_id()].to(replica.device());
    std::this_thread::sleep_for(std::chrono::milliseconds(replica.replica_id()));
    for (int i = 0; i < 2; ++i) x = recomputes == Recomputes::kNothing ? mixed(x) : recompute(mixed, x);
    // Small, since a chaotic training would magnify rounding.
    (0.05 * x.square().sum()).backward();
    replica.apply_gradients(sgd);
    return x.detach();
  };
  std::vector<torch::Tensor> results;
  for (int i = 0; i < kSteps; ++i) {
    const auto values = strategy.run(step, model, optimizer);
    results.insert(results.end(), values.local_values().begin(), values.local_values().end());
  }
  for (const auto& replica : model.local_values()) {
    for (const auto& parameter : replica->parameters()) results.push_back(parameter);
  }
  return values_of(results);
}

TEST(RecomputeReplicasTest, TrainsAsPlainExecutionWithDropoutAndCollectivesInTheFunction) {
  const auto plain = trained(Recomputes::kNothing);
  EXPECT_LE(largest_difference(trained(Recomputes::kEachBlock), plain), kRounding);
  EXPECT_LE(largest_difference(trained(Recomputes::kPairsAndTheirBlocks), plain), kRounding);
}

TEST(RecomputeReplicasTest, ReplicasStayBitEqual) {
  const auto results = trained(Recomputes::kPairsAndTheirBlocks);
  const auto parameters = (results.size() - 2 * kSteps) / 2;
  const auto begin = results.begin() + 2 * kSteps;
  EXPECT_TRUE(bit_equal({begin, begin + static_cast<std::ptrdiff_t>(parameters)},
                        {begin + static_cast<std::ptrdiff_t>(parameters), results.end()}));
}

/// The sums of gradients of a stack whose first block is used twice, and the number of buckets that hooks
/// launched before backward ended.
std::pair<std::vector<torch::Tensor>, int64_t> reduced(Recomputes recomputes) {
  std::vector<StackOfBlocks> stacks;
  const auto make = [&] {
    torch::manual_seed(4);
    return stacks.emplace_back(recomputes, 4, /*dropout_probability=*/0)->parameters();
  };
  Reducers reducers(2, make, kOneParameterABucket);
  const auto inputs = torch::randn({2, 5, 4}, torch::kDouble);
  const auto step = [&](int rank) {
    stacks[static_cast<size_t>(rank)]->zero_grad();
    stacks[static_cast<size_t>(rank)]->forward(inputs[rank]).square().sum().backward();
    reducers.reducer(rank).finish();
  };
  reducers.run(step);
  reducers.run([&](int rank) { reducers.reducer(rank).mark_applied(); });
  const auto before = reducers.reducer(0).statistics().launched_in_backward;
  reducers.run(step);
  std::vector<torch::Tensor> sums;
  for (const auto& parameter : stacks[0]->parameters()) sums.push_back(parameter.grad().clone());
  return {sums, reducers.reducer(0).statistics().launched_in_backward - before};
}

TEST(RecomputeReplicasTest, EachGradientLeavesOnceAndDuringBackward) {
  const auto [plain, launched] = reduced(Recomputes::kNothing);
  ASSERT_EQ(launched, 12);  // weights and biases of two layers in three blocks
  for (const auto recomputes :
       {Recomputes::kEachBlock, Recomputes::kPairs, Recomputes::kPairsAndTheirBlocks}) {
    const auto [sums, launched_too] = reduced(recomputes);
    EXPECT_LE(largest_difference(sums, plain), kRounding);
    EXPECT_EQ(launched_too, launched);
  }
}

TEST(RecomputeReplicasTest, HeldGradientsAddUp) {
  const auto train = [](bool recomputes) {
    torch::manual_seed(8);
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
    auto model = strategy.scope([](ReplicaContext&) { return StackOfBlocks(); });
    auto optimizer = strategy.scope(
        [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.05); });
    const auto inputs = torch::randn({5, 4}, torch::kDouble);
    const auto step = [&](ReplicaContext& replica, StackOfBlocks& stack, torch::optim::SGD& sgd) {
      const auto x = inputs.to(replica.device());
      if (recomputes) stack->recomputes = Recomputes::kEachBlock;
      sgd.zero_grad();
      {
        const auto hold = replica.accumulate();
        stack->forward(x * (1 + replica.replica_id())).square().sum().backward();
      }
      stack->forward(x - 1).square().sum().backward();
      replica.apply_gradients(sgd);
    };
    strategy.run(step, model, optimizer);
    return values_of(model.local_values()[1]->parameters());
  };
  EXPECT_LE(largest_difference(train(true), train(false)), kRounding);
}

/// Stands for a GPU's generator: knows a state of one number, which each draw raises.
class CountingGenerator final : public c10::GeneratorImpl {
 public:
  CountingGenerator() : GeneratorImpl(c10::Device(c10::DeviceType::CUDA, 0), {}) {}
  void draw() { ++state_; }
  int64_t state() const { return state_; }

  void set_current_seed(uint64_t seed) override { state_ = static_cast<int64_t>(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return static_cast<uint64_t>(state_); }
  uint64_t seed() override { return current_seed(); }
  void set_state(const c10::TensorImpl& state) override {
    state_ = *static_cast<const int64_t*>(state.data());
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return torch::scalar_tensor(state_, torch::kLong).getIntrusivePtr();
  }

 private:
  GeneratorImpl* clone_impl() const override { return new CountingGenerator(*this); }
  CountingGenerator(const CountingGenerator& other)
      : GeneratorImpl(other.device(), {}), state_(other.state_) {}

  int64_t state_ = 100;
};

TEST(RecomputeReplicasTest, RestoresAGpusGeneratorByItsInterfaceAlone) {
  const auto generator = at::make_generator<CountingGenerator>();
  auto* counting = generator.get<CountingGenerator>();
  const ReplicaRandomGuard in_replica(generator);
  std::vector<int64_t> states;
  const auto x = torch::ones({3}).requires_grad_();
  const auto draws = [&](const torch::Tensor& in) {
    states.push_back(counting->state());
    counting->draw();
    return in * 2;
  };
  const auto y = recompute(draws, recompute(draws, x));
  counting->draw();
  y.sum().backward();
  EXPECT_EQ(states, (std::vector<int64_t>{100, 101, 101, 100}));
  EXPECT_EQ(counting->state(), 103);
}

}  // namespace
}  // namespace lockstep
