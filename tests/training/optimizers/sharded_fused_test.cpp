// Fused optimizers whose state is sharded. Oracle: the same training without sharding.
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/runtime/gradients/elementwise_optimizers.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/tests/runtime/gradients/sharded_training.h"
#include "lockstep/training/optimizers/fused_adagrad.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/optimizers/sparse_adam.h"

namespace lockstep {
namespace {

using Made = std::unique_ptr<torch::optim::Optimizer>;

const std::vector<MakeOptimizer> kFusedOptimizers{
    [](const Parameters& own) -> Made {
      return std::make_unique<FusedAdam>(own, FusedAdamOptions(0.02).amsgrad(true));
    },
    [](const Parameters& own) -> Made {
      return std::make_unique<FusedAdamW>(own, FusedAdamWOptions(0.02).weight_decay(0.1));
    },
    [](const Parameters& own) -> Made {
      return std::make_unique<FusedSgd>(own, FusedSgdOptions(0.01).momentum(0.9));
    },
    [](const Parameters& own) -> Made { return std::make_unique<FusedAdagrad>(own); }};

TEST(ShardedFusedOptimizers, AreElementwiseUnlikeSparseAdam) {
  const Parameters parameters{torch::ones({2}).requires_grad_()};
  for (const auto& make : kFusedOptimizers) EXPECT_TRUE(is_elementwise(*make(parameters)));
  EXPECT_FALSE(is_elementwise(SparseAdam(parameters)));
}

TEST(ShardedFusedOptimizers, TrainAsWithoutShardingAndSkipStepsWithIt) {
  for (const auto& make : kFusedOptimizers) {
    for (const ShardedLayout& layout : {ShardedLayout{1, 2, 1}, ShardedLayout{2, 2, 1}}) {
      SCOPED_TRACE(layout.name());
      ShardedTraining sharded(layout, odd_parameters, make, kShardedBuckets);
      ShardedTraining plain({0, 2, 1}, odd_parameters, make, kShardedBuckets);
      for (auto* training : {&sharded, &plain}) {
        std::vector<GradScaler> scalers;
        for (int rank = 0; rank < 2; ++rank) scalers.emplace_back(torch::kCPU);
        for (int step = 0; step < 20; ++step) {
          training->run([&](int rank) {
            auto& scaler = scalers[static_cast<size_t>(rank)];
            training->optimizer(rank).zero_grad();
            at::Tensor loss = scaler.scale(odd_loss(training->parameters(rank), step, rank));
            if (step == 7) loss = loss * (rank == 0 ? std::numeric_limits<double>::infinity() : 1.0);
            loss.backward();
            training->apply(rank, {.clip_norm = 30.0, .scaler = &scaler});
            scaler.update();
          });
        }
      }
      expect_parameters(sharded, plain.parameters(0));
    }
  }
}

}  // namespace
}  // namespace lockstep
