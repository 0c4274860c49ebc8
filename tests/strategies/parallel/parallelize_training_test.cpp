// Trainings of an encoder that knows nothing of ranks, whose layers parallelize() cuts. Oracle: the same
// training of the whole encoder on data replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/tests/strategies/parallel/parallelize_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

constexpr int kEncoderSteps = compared_steps(20);
constexpr double kEncoderClose = 1e-12;

StrategyOptions encoder_options(const Mesh& mesh) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256}};
}

struct EncoderVariant {
  double dropout = 0;
  bool recomputes = false;
};

void expect_encoder_training(Strategy& strategy, const ParallelRun& whole,
                             const EncoderVariant& variant = {}) {
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return planned_encoder(replica.axis("tensor"), variant.dropout); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (int step = 0; step < kEncoderSteps; ++step) {
    const auto results = strategy.run(encoder_step, model, adam, step, variant.recomputes);
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const auto at = static_cast<size_t>(step);
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    ASSERT_NEAR(loss, whole.losses[at], kEncoderClose) << "step " << step;
    for (const auto& result : results.local_values())
      ASSERT_NEAR(result.norm.item<double>(), whole.norms[at], kEncoderClose) << "step " << step;
  }
  const auto differences = strategy.run(
      [&](ReplicaContext&, Encoder& encoder) { return difference_of_parts(encoder, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kEncoderClose);
}

class ParallelizedTraining : public testing::TestWithParam<std::string> {
 protected:
  Mesh mesh() const { return parse_mesh(GetParam()); }
  void expect_on_threads(const EncoderVariant& variant) const {
    MirroredStrategy strategy(cpu_devices(mesh().size()), encoder_options(mesh()));
    expect_encoder_training(strategy, trained_encoder(mesh().num_replicas(), kEncoderSteps, variant.dropout),
                            variant);
  }
};

TEST_P(ParallelizedTraining, EqualsThatOfTheWholeEncoder) {
  expect_on_threads({});
}

TEST_P(ParallelizedTraining, WithRecomputationEqualsThatOfTheWholeEncoder) {
  expect_on_threads({.dropout = 0.25, .recomputes = true});
}

TEST_P(ParallelizedTraining, OverWorkersEqualsThatOfTheWholeEncoder) {
  const auto whole = trained_encoder(mesh().num_replicas(), kEncoderSteps, 0.25);
  const int ranks = mesh().size();
  const std::vector<std::vector<int>> layouts = {std::vector<int>(static_cast<size_t>(ranks), 1),
                                                 {ranks / 2, ranks - ranks / 2}};
  for (const auto& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout.size() << " workers");
    expect_no_worker_failed(run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          expect_encoder_training(strategy, whole, {.dropout = 0.25, .recomputes = layout.size() == 2});
        },
        [&](int, WorkerSetUp& set_up) { set_up.options = encoder_options(mesh()); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ParallelizedTraining,
                         testing::Values("tensor=2", "tensor=4", "data=2,tensor=2", "tensor=2,data=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

TEST(ParallelizedTrainingTest, WithShardedStatesEqualsThatOfTheWholeEncoder) {
  const auto whole = trained_encoder(2, kEncoderSteps);
  for (const int stage : {1, 2}) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    auto options = encoder_options({{"data", 2}, {"tensor", 2}});
    options.sharding = {.stage = stage, .axis = "data"};
    MirroredStrategy strategy(cpu_devices(4), options);
    expect_encoder_training(strategy, whole);
  }
}

/// A block whose two layers the plan may cut.
struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(double phase) {
    up = register_module("up", wave_linear(8, 16, phase));
    down = register_module("down", wave_linear(16, 8, phase + 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::tanh(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Residual);

/// Trains blocks that `make(replica)` returns, and returns what they then compute.
template <typename Make>
torch::Tensor trained_blocks(const Mesh& mesh, const Make& make) {
  MirroredStrategy strategy(cpu_devices(mesh.size()), encoder_options(mesh));
  auto model = strategy.scope(make);
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  const auto input = [](const ReplicaContext& replica, int step) {
    return wave_values({8, 8}, step).narrow(0, replica.replica_id() * 4, 4);
  };
  for (int step = 0; step < kEncoderSteps; ++step) {
    strategy.run(
        [&](ReplicaContext& replica, auto& own, torch::optim::AdamW& optimizer) {
          optimizer.zero_grad();
          own->forward(input(replica, step)).square().sum().backward();
          replica.apply_gradients(optimizer, {.clip_norm = 0.05});
        },
        model, adam);
  }
  return strategy
      .run(
          [&](ReplicaContext&, auto& own) {
            return own->forward(wave_values({8, 8}, 0.5)).detach();
          },
          model)
      .local_values()
      .front();
}

TEST(ParallelizedTrainingTest, InShardedUnitsEqualsThatOfTheWholeBlocks) {
  const auto expected = trained_blocks(
      {{"data", 2}}, [](ReplicaContext&) { return torch::nn::Sequential(Residual(1), Residual(5)); });
  const auto in_units = trained_blocks({{"data", 2}, {"tensor", 2}}, [](ReplicaContext& replica) {
    std::vector<ElementFactory> blocks;
    for (const double phase : {1, 5}) {
      blocks.emplace_back([&replica, phase] {
        Residual block(phase);
        parallelize(block, replica.axis("tensor"), {{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}});
        return block;
      });
    }
    return shard_elements(blocks, along(replica.axis("data")));
  });
  EXPECT_LE((in_units - expected).abs().max().item<double>(), kEncoderClose);
}

/// Returns the whole encoder's logits, and expects the ranks' to be near.
template <typename Forward>
void expect_forward(double tolerance, const Forward& forward) {
  Encoder whole = wave_encoder();
  const auto expected = forward(whole);
  MirroredStrategy strategy(cpu_devices(2), encoder_options({{"tensor", 2}}));
  auto model =
      strategy.scope([](ReplicaContext& replica) { return planned_encoder(replica.axis("tensor")); });
  const auto results =
      strategy.run([&](ReplicaContext&, Encoder& encoder) { return forward(encoder); }, model);
  for (const auto& result : results.local_values()) {
    EXPECT_EQ(result.scalar_type(), expected.scalar_type());
    EXPECT_LE((result - expected).abs().max().template item<double>(), tolerance);
  }
}

TEST(ParallelizedForward, InInferenceModeEqualsThatOfTheWholeEncoder) {
  expect_forward(1e-13, [](Encoder& encoder) {
    const c10::InferenceMode inference;
    const auto logits = encoder->forward(encoder_ids(0));
    return logits.clone();
  });
}

TEST(ParallelizedForward, UnderAutocastIsThatOfTheWholeEncoderUpToRounding) {
  // Sums of two rounded parts: a few units of bfloat16's last place of values around 1.
  expect_forward(0.03, [](Encoder& encoder) {
    encoder->to(torch::kFloat);
    const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
    return encoder->forward(encoder_ids(0)).detach();
  });
}

}  // namespace
}  // namespace lockstep
