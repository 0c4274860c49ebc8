// Losses of ranks that have different tokens of the same examples. Oracle: the loss of all tokens.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"

namespace lockstep {
namespace {

/// The losses of 4 examples of 6 tokens, in float64.
torch::Tensor losses_of_all() {
  return torch::arange(24, torch::kDouble).reshape({4, 6}).square() / 7;
}

StrategyOptions options_over(const Mesh& mesh) {
  return {.intra_op_threads = 1, .mesh = mesh};
}

TEST(ContextLosses, ARankReturnsItsReplicasLossWithTheGradientOfItsTokens) {
  MirroredStrategy strategy(cpu_devices(6), options_over({{"data", 2}, {"context", 3}}));
  const auto all = losses_of_all();
  const auto losses = strategy.run([&](ReplicaContext& replica) {
    const auto own = all.narrow(0, 2 * replica.replica_id(), 2)
                         .narrow(1, 2 * replica.axis("context").index(), 2)
                         .clone()
                         .requires_grad_();
    const auto loss = compute_average_loss(replica, own);
    loss.backward();
    EXPECT_TRUE(torch::equal(own.grad(), torch::full({2, 2}, 0.25, torch::kDouble)));
    return loss.detach();
  });
  for (size_t rank = 0; rank < 6; ++rank)
    EXPECT_DOUBLE_EQ(losses[rank].item<double>(),
                     all.narrow(0, static_cast<int64_t>(rank) / 3 * 2, 2).sum().item<double>() / 4);
  EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::kSum, losses).item<double>(), all.sum(1).mean().item<double>());
}

TEST(ContextLosses, AMeanOverTokensIsThatOfAllTokens) {
  MirroredStrategy strategy(cpu_devices(4), options_over({{"context", 2}, {"inner", 2, AxisRole::kContext}}));
  const auto all = losses_of_all();
  const auto losses = strategy.run([&](ReplicaContext& replica) {
    // Parts of 7, 7, 7 and 3 tokens.
    const int64_t begin = 7 * replica.rank();
    const auto own = all.flatten().narrow(0, begin, std::min<int64_t>(7, 24 - begin));
    return compute_average_loss(replica, own, {.global_batch_size = 24});
  });
  for (const auto& loss : losses.local_values())
    EXPECT_NEAR(loss.item<double>(), all.mean().item<double>(), 1e-13);
}

TEST(ContextLosses, ATermThatAllRanksComputeCountsOnce) {
  MirroredStrategy strategy(cpu_devices(4), options_over({{"data", 2}, {"context", 2}}));
  const auto losses = strategy.run([&](ReplicaContext& replica) {
    const auto weight = torch::ones({3}, torch::kDouble).requires_grad_();
    const auto loss = scale_regularization_loss(replica, weight * 5);
    loss.backward();
    EXPECT_TRUE(torch::equal(weight.grad(), torch::full({3}, 1.25, torch::kDouble)));
    return loss.detach();
  });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, losses).item<double>(), 15);
}

}  // namespace
}  // namespace lockstep
