// Models of sharded units, trained by optimizers of scope(). Oracle: the same training with whole parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/tanh_net.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Values without random numbers: the workers of a test share one random state, and all need the same values.
torch::Tensor waves(at::IntArrayRef sizes, double phase) {
  const int64_t count = c10::multiply_integers(sizes);
  return 0.5 * torch::sin(1.7 * torch::arange(count, torch::kDouble) + phase).reshape(sizes);
}

struct AffineImpl : torch::nn::Module {
  AffineImpl(int64_t inputs, int64_t outputs, double phase) {
    weight = register_parameter("weight", waves({outputs, inputs}, phase));
    bias = register_parameter("bias", waves({outputs}, phase + 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight, bias); }

  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(Affine);

/// A block with a frozen bias and fewer elements in it than replicas.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(double phase) {
    linear = register_module("linear", Affine(5, 5, phase));
    scale = register_parameter("scale", torch::ones({1}, torch::kDouble));
    linear->bias.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + scale * torch::tanh(linear(x)); }

  Affine linear{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Block);

/// Two blocks between layers that every replica has whole.
template <typename AnyBlock>
struct NetImpl : torch::nn::Module {
  template <typename... Options>
  explicit NetImpl(const Options&... options) {
    input = register_module("input", Affine(6, 5, 2));
    first = register_module("first", AnyBlock(options..., 3.0));
    second = register_module("second", AnyBlock(options..., 4.0));
    output = register_module("output", Affine(5, 2, 5));
  }
  torch::Tensor forward(const torch::Tensor& x) { return output(second(first(input(x)))); }

  Affine input{nullptr};
  AnyBlock first{nullptr};
  AnyBlock second{nullptr};
  Affine output{nullptr};
};
using WholeNet = torch::nn::ModuleHolder<NetImpl<Block>>;
using UnitNet = torch::nn::ModuleHolder<NetImpl<Sharded<Block>>>;

StrategyOptions options_of(const Mesh& mesh) {
  return {.intra_op_threads = 1,
          .seed = 1,
          .mesh = mesh,
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128}};
}

template <typename Net>
torch::Tensor loss_of(const ReplicaContext& replica, Net& net, int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(10 * step + replica.replica_id()));
  return net->forward(torch::randn({3, 6}, generator, torch::kDouble).to(replica.device())).square().sum();
}

using AdamW = torch::optim::AdamW;

template <typename Net>
AdamW make_adam(Net& net) {
  return AdamW(net->parameters(), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

/// Returns the norm of the gradients.
template <typename Net>
torch::Tensor train_step(ReplicaContext& replica, Net& net, AdamW& adam, int step) {
  adam.zero_grad();
  {
    const auto held = replica.accumulate();
    loss_of(replica, net, 2 * step).backward();
  }
  loss_of(replica, net, 2 * step + 1).backward();
  return replica.apply_gradients(adam, {.clip_norm = 2.0});
}

struct Trained {
  std::vector<torch::Tensor> parameters;
  std::vector<double> norms;
};

/// The training that others must equal.
Trained trained_whole(int replicas, int steps) {
  MirroredStrategy strategy(cpu_devices(replicas), options_of({}));
  auto model = strategy.scope([](ReplicaContext&) { return WholeNet(); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return make_adam(model[replica]); });
  Trained trained;
  for (int step = 0; step < steps; ++step)
    trained.norms.push_back(strategy.run(train_step<WholeNet>, model, adam, step)[0].item<double>());
  trained.parameters = values_of(model.primary()->parameters());
  return trained;
}

/// Expects the parameters of `net`, with whole ones in the place of shards.
void expect_parameters(UnitNet& net, const std::vector<torch::Tensor>& expected) {
  std::vector<torch::Tensor> own;
  const auto add = [&](const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters()) own.push_back(parameter.detach());
  };
  const auto add_unit = [&](Sharded<Block>& unit) {
    for (const auto& parameter : unit->whole_parameters()) own.push_back(parameter.value());
  };
  add(*net->input);
  add_unit(net->first);
  add_unit(net->second);
  add(*net->output);
  EXPECT_LE(largest_difference(own, expected), 1e-12);
}

class StrategyUnits : public testing::TestWithParam<std::string> {
 protected:
  Mesh mesh() const { return parse_mesh(GetParam()); }
  std::string axis() const { return mesh().has("shard") ? "shard" : "data"; }
};

INSTANTIATE_TEST_SUITE_P(Meshes, StrategyUnits,
                         testing::Values("data=4", "data=2,shard=2", "shard=2,data=2", "data=1,shard=4",
                                         "data=4,shard=1"));

TEST_P(StrategyUnits, TrainAsWholeParametersDo) {
  constexpr int kSteps = compared_steps(20);
  const Trained expected = trained_whole(4, kSteps);
  MirroredStrategy strategy(cpu_devices(4), options_of(mesh()));
  auto model = strategy.scope([&](ReplicaContext& replica) { return UnitNet(along(replica.axis(axis()))); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return make_adam(model[replica]); });
  for (int step = 0; step < kSteps; ++step) {
    const auto norms = strategy.run(train_step<UnitNet>, model, adam, step);
    for (const auto& norm : norms.local_values())
      EXPECT_NEAR(norm.item<double>(), expected.norms[static_cast<size_t>(step)], 1e-11);
  }
  strategy.run([&](ReplicaContext&, UnitNet& net) { expect_parameters(net, expected.parameters); }, model);
}

TEST_P(StrategyUnits, TrainAsWholeParametersDoOverWorkers) {
  constexpr int kSteps = 5;
  const Trained expected = trained_whole(4, kSteps);
  for (const auto& layout : {std::vector{2, 2}, std::vector{1, 3}}) {
    expect_no_worker_failed(run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          auto model =
              strategy.scope([&](ReplicaContext& replica) { return UnitNet(along(replica.axis(axis()))); });
          auto adam = strategy.scope([&](ReplicaContext& replica) { return make_adam(model[replica]); });
          for (int step = 0; step < kSteps; ++step) strategy.run(train_step<UnitNet>, model, adam, step);
          strategy.run([&](ReplicaContext&, UnitNet& net) { expect_parameters(net, expected.parameters); },
                       model);
        },
        [&](int, WorkerSetUp& set_up) { set_up.options = options_of(mesh()); }));
  }
}

TEST(StrategyUnitsTest, AStepIsSkippedByAllIfOneShardIsNotFinite) {
  for (int bad = 0; bad < 2; ++bad) {
    MirroredStrategy strategy(cpu_devices(2), options_of({}));
    auto model = strategy.scope([](ReplicaContext& replica) { return UnitNet(along(replica.axis("data"))); });
    auto sgd = strategy.scope([&](ReplicaContext& replica) {
      return torch::optim::SGD(model[replica]->parameters(), torch::optim::SGDOptions(0.1));
    });
    auto scaler = strategy.scope(
        [](ReplicaContext& replica) { return GradScaler(replica.device(), {.init_scale = 4}); });
    const auto step = [&](bool is_bad) {
      strategy.run(
          [&](ReplicaContext& replica, UnitNet& net, torch::optim::SGD& own, GradScaler& scale) {
            own.zero_grad();
            scale.scale(loss_of(replica, net, 0)).backward();
            replica.reduce_gradients(own);
            if (is_bad && replica.replica_id() == bad) {
              for (const auto& parameter : net->first->parameters()) {
                if (parameter.numel() > 0 && parameter.grad().defined()) parameter.grad().fill_(INFINITY);
              }
            }
            replica.apply_gradients(own, {.scaler = &scale});
            scale.update();
          },
          model, sgd, scaler);
    };
    const auto before = model.primary()->output->weight.detach().clone();
    step(true);
    EXPECT_TRUE(torch::equal(model.primary()->output->weight, before));
    step(false);
    EXPECT_FALSE(torch::equal(model.primary()->output->weight, before));
  }
}

TEST(StrategyUnitsTest, RefuseOptimizersThatCannotStepShards) {
  MirroredStrategy strategy(cpu_devices(2), options_of({}));
  auto model = strategy.scope([](ReplicaContext& replica) { return UnitNet(along(replica.axis("data"))); });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) {
                  return std::make_shared<torch::optim::LBFGS>(model[replica]->parameters());
                });
              }),
              AllOf(HasSubstr("LBFGS"), HasSubstr("elementwise")));
}

TEST(StrategyUnitsTest, StandBesideTheShardedStateOfOtherParameters) {
  constexpr int kSteps = compared_steps(10);
  const auto expected = trained_whole(2, kSteps);
  for (const int stage : {1, 2}) {
    auto options = options_of({});
    options.sharding.stage = stage;
    MirroredStrategy strategy(cpu_devices(2), options);
    auto model = strategy.scope([](ReplicaContext& replica) { return UnitNet(along(replica.axis("data"))); });
    auto adam = strategy.scope([&](ReplicaContext& replica) { return make_adam(model[replica]); });
    for (int step = 0; step < kSteps; ++step) {
      const auto norms = strategy.run(train_step<UnitNet>, model, adam, step);
      for (const auto& norm : norms.local_values())
        EXPECT_NEAR(norm.item<double>(), expected.norms[static_cast<size_t>(step)], 1e-11) << stage;
    }
    strategy.run([&](ReplicaContext&, UnitNet& net) { expect_parameters(net, expected.parameters); }, model);
  }
}

TEST(StrategyUnitsTest, RefuseUnitsThatAreNotCutOnSeveralReplicas) {
  MirroredStrategy strategy(cpu_devices(2), options_of({}));
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { strategy.scope([](ReplicaContext&) { return UnitNet(UnitOptions{}); }); }),
              AllOf(HasSubstr("part 0 of 2"), HasSubstr("it is part 0 of 1")));
}

TEST(StrategyUnitsTest, RefuseGradientCompression) {
  auto options = options_of({});
  options.communication.gradient_compression = make_gradient_compression("float16");
  MirroredStrategy strategy(cpu_devices(2), options);
  auto model = strategy.scope([](ReplicaContext& replica) { return UnitNet(along(replica.axis("data"))); });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) { return make_adam(model[replica]); });
              }),
              HasSubstr("expected no gradient compression"));
}

TEST(StrategyUnitsTest, NameAParameterThatIsUsedOutsideOfItsUnit) {
  MirroredStrategy strategy(cpu_devices(2), options_of({}));
  std::vector<Block> blocks;
  auto model = strategy.scope([&](ReplicaContext& replica) {
    blocks.emplace_back(3.0);
    return Sharded<Block>(along(replica.axis("data")), blocks.back());
  });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run(
                    [&](ReplicaContext& replica, Sharded<Block>&) {
                      blocks[static_cast<size_t>(replica.replica_id())]->linear->weight.sum().item();
                    },
                    model);
              }),
              AllOf(HasSubstr("[Sharded]"), HasSubstr("linear.weight")));
}

TEST(StrategyUnitsTest, RefuseUnitsOfAnotherPlaceOnTheAxis) {
  MirroredStrategy strategy(cpu_devices(2), options_of({}));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([](ReplicaContext& replica) {
                  return UnitNet(UnitOptions{.index = 1 - replica.replica_id(), .size = 2});
                });
              }),
              AllOf(HasSubstr("part 0 of 2"), HasSubstr("it is part 1 of 2"), HasSubstr("axis data")));
}

}  // namespace
}  // namespace lockstep
