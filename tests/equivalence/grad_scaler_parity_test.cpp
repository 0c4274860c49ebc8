// Training with a GradScaler equals LibTorch alone without the overflowing steps, and scales follow
// torch.amp's rule. An overflow on one replica skips the step on all.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <latch>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr GradScalerOptions kScaling{.growth_interval = 3};

auto make_scaler(const GradScalerOptions& options = kScaling) {
  return [options](ReplicaContext& replica) { return GradScaler(replica.device(), options); };
}

class GradScalerParity : public testing::TestWithParam<std::tuple<int, std::string, at::ScalarType>> {
 protected:
  TanhNet make_net() const {
    TanhNet net;
    net->to(dtype_);
    return net;
  }

  ReplicasAndOps replicas_and_ops_{std::get<0>(GetParam()), std::get<1>(GetParam())};
  at::ScalarType dtype_ = std::get<2>(GetParam());
};

TEST_P(GradScalerParity, AnOverflowOnOneReplicaSkipsTheStepOnAll) {
  // Batches of 4 of 13 examples: the last of each pass gives most replicas an empty shard.
  constexpr int64_t kBatch = 4;
  constexpr int64_t kSteps = 20;
  const std::set<int64_t> overflows{0, 1, 6, 12, 13};
  Example data = examples_of_three_classes();
  data.data = data.data.to(dtype_);
  const auto make_optimizer = momentum_sgd();

  torch::manual_seed(17);
  TanhNet alone = make_net();
  const auto alone_optimizer = make_optimizer(alone->parameters());
  std::vector<double> expected_scales;
  double scale = 65536;
  int64_t since = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (overflows.count(step) > 0) {
      scale *= kScaling.backoff_factor;
      since = 0;
    } else {
      const int64_t begin = step % 4 * kBatch;
      const int64_t count = std::min(kBatch, kExamples - begin);
      alone_optimizer->zero_grad();
      example_losses(alone, {data.data.narrow(0, begin, count), data.target.narrow(0, begin, count)})
          .mean()
          .backward();
      alone_optimizer->step();
      if (++since == kScaling.growth_interval) {
        scale *= kScaling.growth_factor;
        since = 0;
      }
    }
    expected_scales.push_back(scale);
  }

  const auto& [replicas, ops] = replicas_and_ops_;
  MirroredStrategy strategy(cpu_devices(replicas),
                            {.cross_device_ops = make_cross_device_ops(ops), .intra_op_threads = 1});
  torch::manual_seed(17);
  auto model = strategy.scope([&](ReplicaContext&) { return make_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return make_optimizer(model[replica]->parameters()); });
  auto scaler = strategy.scope(make_scaler());
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatch});
  int64_t step = 0;
  while (step < kSteps) {
    for (const auto& batch : batches) {
      const bool overflow = overflows.count(step) > 0;
      // A different replica each time, including one with an empty shard.
      const int64_t culprit = step % strategy.num_replicas_in_sync();
      strategy.run(
          [&](ReplicaContext& replica, TanhNet& own, OptimizerPointer& own_optimizer, GradScaler& own_scaler,
              const Example& shard) {
            own_optimizer->zero_grad();
            auto loss = compute_average_loss(replica, example_losses(own, shard));
            if (overflow && replica.replica_id() == culprit) loss = loss + kInf * own->second->bias.sum();
            own_scaler.scale(loss).backward();
            replica.apply_gradients(*own_optimizer, {.scaler = &own_scaler});
            own_scaler.update();
          },
          model, optimizer, scaler, batch);
      for (auto& own_scaler : scaler.local_values())
        EXPECT_EQ(own_scaler.get_scale(), expected_scales[static_cast<size_t>(step)]) << "step " << step;
      expect_bit_equal_replicas(model, step);
      ++step;
    }
  }
  EXPECT_EQ(step, kSteps);
  const double tolerance = dtype_ == torch::kDouble ? 1e-12 : 1e-6;
  EXPECT_LE(largest_difference(model.primary()->parameters(), alone->parameters()), tolerance);
  // Skipped steps count as finished.
  for (const int64_t steps : strategy.optimizer_group(*optimizer.primary())->finished_steps())
    EXPECT_EQ(steps, kSteps);
}

TEST_P(GradScalerParity, WithoutOverflowScalesByPowersOfTwoChangeNoBit) {
  Example data = examples_of_three_classes();
  data.data = data.data.to(dtype_);
  const auto make = [this] { return make_net(); };
  for (const bool fused : {false, true}) {
    const MakeOptimizer make_optimizer = fused ? MakeOptimizer([](const auto& parameters) {
      return std::make_unique<FusedAdam>(parameters, 1e-2);
    })
                                               : momentum_sgd();
    const auto plain =
        trained_on_replicas<TanhNet>(replicas_and_ops_, make, data, make_optimizer, plain_step<TanhNet>);
    std::vector<GradScaler> scalers;
    for (const auto& name : cpu_devices(std::get<0>(replicas_and_ops_)))
      scalers.emplace_back(parse_device(name).torch_device(), kScaling);
    const auto step = [&scalers](ReplicaContext& replica, TanhNet& model, OptimizerPointer& optimizer,
                                 const Example& shard) {
      GradScaler& scaler = scalers[static_cast<size_t>(replica.replica_id())];
      optimizer->zero_grad();
      scaler.scale(compute_average_loss(replica, example_losses(model, shard))).backward();
      replica.apply_gradients(*optimizer, {.scaler = &scaler});
      scaler.update();
    };
    const auto scaled = trained_on_replicas<TanhNet>(replicas_and_ops_, make, data, make_optimizer, step);
    EXPECT_TRUE(bit_equal(scaled, plain)) << fused;
    EXPECT_EQ(scalers[0].get_scale(), 65536.0 * 16);  // 12 steps, doubled after every third
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, GradScalerParity,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values("hierarchical_copy", "reduction_to_one_device"),
                                          testing::Values(torch::kDouble, torch::kFloat)),
                         [](const auto& info) {
                           return std::get<1>(info.param) + "_" + std::to_string(std::get<0>(info.param)) +
                                  (std::get<2>(info.param) == torch::kDouble ? "_float64" : "_float32");
                         });

/// Two replicas with one weight of two values each; a replica's gradient is what the test gives it.
class GradScalerOnTwoReplicas : public testing::Test {
 protected:
  Mirrored<torch::Tensor> make_weight() {
    return strategy_.scope([](ReplicaContext&) { return torch::zeros({2}).requires_grad_(); });
  }
  Mirrored<FusedSgd> make_optimizer(Mirrored<torch::Tensor>& weight) {
    return strategy_.scope([&](ReplicaContext& replica) {
      return FusedSgd({weight[replica]}, FusedSgdOptions(1.0).momentum(0.5));
    });
  }

  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Mirrored<torch::Tensor> weight_ = make_weight();
  Mirrored<FusedSgd> optimizer_ = make_optimizer(weight_);
  Mirrored<GradScaler> scaler_ = strategy_.scope(make_scaler());
};

TEST_F(GradScalerOnTwoReplicas, OppositeInfinitiesAreAnOverflow) {
  strategy_.run(
      [](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
        const float x = replica.replica_id() == 0 ? kInf : -kInf;
        scaler.scale((weight * x).sum()).backward();
        replica.apply_gradients(optimizer, {.scaler = &scaler});
        scaler.update();
      },
      weight_, optimizer_, scaler_);
  for (size_t replica = 0; replica < 2; ++replica) {
    EXPECT_TRUE(torch::equal(weight_.local_values()[replica].cpu(), torch::zeros({2})));
    EXPECT_EQ(scaler_.local_values()[replica].get_scale(), 32768);
  }
}

// Each replica's own gradient is finite, and so is its scaled one; their sum is not.
TEST_F(GradScalerOnTwoReplicas, ASumThatOverflowsIsAnOverflow) {
  strategy_.run(
      [](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
        scaler.scale((weight * (3e38 / 65536)).sum()).backward();
        replica.apply_gradients(optimizer, {.scaler = &scaler});
        scaler.update();
      },
      weight_, optimizer_, scaler_);
  for (size_t replica = 0; replica < 2; ++replica) {
    EXPECT_TRUE(torch::equal(weight_.local_values()[replica].cpu(), torch::zeros({2})));
    EXPECT_EQ(scaler_.local_values()[replica].get_scale(), 32768);
  }
}

TEST_F(GradScalerOnTwoReplicas, ClipsByTheNormOfTheUnscaledSums) {
  const auto norms = strategy_.run(
      [](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
        // Sums of 30 and 40, whose norm is 50.
        const auto x =
            replica.replica_id() == 0 ? torch::tensor({10.0F, 40.0F}) : torch::tensor({20.0F, 0.0F});
        scaler.scale((weight * x.to(replica.device())).sum()).backward();
        const auto norm = replica.apply_gradients(optimizer, {.clip_norm = 5.0, .scaler = &scaler});
        scaler.update();
        return norm.item<double>();
      },
      weight_, optimizer_, scaler_);
  EXPECT_EQ(norms.local_values(), (std::vector<double>{50, 50}));
  for (const auto& weight : weight_.local_values())
    EXPECT_TRUE(torch::allclose(weight.cpu(), torch::tensor({-3.0F, -4.0F})));
}

TEST_F(GradScalerOnTwoReplicas, TheSumsCanBeUnscaledAndChangedBeforeTheStep) {
  strategy_.run(
      [](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
        scaler.scale((weight * 4).sum()).backward();
        replica.reduce_gradients(optimizer);
        scaler.unscale(optimizer);
        EXPECT_TRUE(torch::equal(weight.grad().cpu(), torch::full({2}, 8.0F)));
        weight.mutable_grad().clamp_max_(3);
        replica.apply_gradients(optimizer, {.scaler = &scaler});
        scaler.update();
      },
      weight_, optimizer_, scaler_);
  for (const auto& weight : weight_.local_values())
    EXPECT_TRUE(torch::equal(weight.cpu(), torch::full({2}, -3.0F)));
}

TEST_F(GradScalerOnTwoReplicas, HeldGradientsAreSummedAndUnscaledOnce) {
  strategy_.run(
      [](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
        {
          const auto hold = replica.accumulate();
          scaler.scale((weight * 1).sum()).backward();
        }
        scaler.scale((weight * 2).sum()).backward();
        replica.apply_gradients(optimizer, {.scaler = &scaler});
        scaler.update();
      },
      weight_, optimizer_, scaler_);
  for (const auto& weight : weight_.local_values())
    EXPECT_TRUE(torch::equal(weight.cpu(), torch::full({2}, -6.0F)));
}

// As in a GAN: one scale for two losses and two optimizers.
TEST_F(GradScalerOnTwoReplicas, TwoOptimizersShareAScaleThatChangesOnceAStep) {
  auto other_weight = make_weight();
  auto other_optimizer = make_optimizer(other_weight);
  // Only the first optimizer's gradient overflows, on replica 1, in steps 0 and 1; then three good steps.
  for (int step = 0; step < 5; ++step) {
    strategy_.run(
        [&](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, torch::Tensor& other,
            FusedSgd& other_optimizer, GradScaler& scaler) {
          optimizer.zero_grad();
          other_optimizer.zero_grad();
          const double x = step < 2 && replica.replica_id() == 1 ? kInf : 1;
          scaler.scale((weight * x).sum()).backward();
          scaler.scale(other.sum()).backward();
          replica.apply_gradients(optimizer, {.scaler = &scaler});
          replica.apply_gradients(other_optimizer, {.scaler = &scaler});
          scaler.update();
        },
        weight_, optimizer_, other_weight, other_optimizer, scaler_);
  }
  // Momentum 0.5 on sums of 2: three steps move by 2 + 3 + 3.5, five by 2 + 3 + 3.5 + 3.75 + 3.875.
  for (size_t replica = 0; replica < 2; ++replica) {
    EXPECT_TRUE(torch::equal(weight_.local_values()[replica].cpu(), torch::full({2}, -8.5F)));
    EXPECT_TRUE(torch::equal(other_weight.local_values()[replica].cpu(), torch::full({2}, -16.125F)));
    EXPECT_EQ(scaler_.local_values()[replica].get_scale(), 65536.0 / 4 * 2);
  }
}

TEST_F(GradScalerOnTwoReplicas, AForgottenUpdateIsRefusedInTheNextStep) {
  const auto step = [&] {
    strategy_.run(
        [](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
          optimizer.zero_grad();
          scaler.scale(weight.sum()).backward();
          replica.apply_gradients(optimizer, {.scaler = &scaler});
        },
        weight_, optimizer_, scaler_);
  };
  step();
  const auto message = message_of<InvalidArgument>(step);
  EXPECT_NE(message.find("call scaler.update() at the end of every step"), std::string::npos) << message;
}

TEST_F(GradScalerOnTwoReplicas, RestoreConsistencyCopiesTheScale) {
  // Replica 0 finishes a step and updates its scale; replica 1 fails before that.
  std::latch first_has_updated(1);
  EXPECT_THROW(
      strategy_.run(
          [&](ReplicaContext& replica, torch::Tensor& weight, FusedSgd& optimizer, GradScaler& scaler) {
            scaler.scale((weight * kInf).sum()).backward();
            replica.reduce_gradients(optimizer);
            if (replica.replica_id() == 1) {
              first_has_updated.wait();
              throw std::domain_error("planted");
            }
            replica.apply_gradients(optimizer, {.scaler = &scaler});
            scaler.update();
            first_has_updated.count_down();
          },
          weight_, optimizer_, scaler_),
      std::domain_error);
  ASSERT_EQ(scaler_.local_values()[0].get_scale(), 32768);
  ASSERT_EQ(scaler_.local_values()[1].get_scale(), 65536);
  auto no_module = strategy_.scope([](ReplicaContext&) { return torch::nn::Linear(1, 1); });
  const auto message =
      message_of<InvalidArgument>([&] { strategy_.restore_consistency(no_module, optimizer_); });
  EXPECT_NE(message.find("restore_consistency(model, optimizer, scaler)"), std::string::npos) << message;
  EXPECT_THROW(strategy_.run([](ReplicaContext&) {}), InconsistentReplicas);
  strategy_.restore_consistency(no_module, optimizer_, scaler_);
  for (auto& scaler : scaler_.local_values()) EXPECT_EQ(scaler.get_scale(), 32768);
  EXPECT_NO_THROW(strategy_.run([](ReplicaContext&) {}));
}

}  // namespace
}  // namespace lockstep
