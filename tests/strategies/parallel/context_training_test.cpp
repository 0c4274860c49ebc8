// Trainings of models whose ranks have different tokens of a sequence. Oracle: the same training on one
// device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/any.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int kSteps = compared_steps(20);
constexpr double kClose = 1e-12;
constexpr int64_t kExamples = 8;
constexpr int64_t kTokens = 11;  // neither 2 nor 4 divides it
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;

/// Makes a net's attention and MLP for ranks along axes; the oracle has neither.
struct NetParts {
  const ReplicaAxis* context = nullptr;
  const ReplicaAxis* tensor = nullptr;
  ContextMethod method = ContextMethod::kRing;
  bool recomputes = false;
};

/// A language model of one block with causal attention.
struct AttentionNetImpl : torch::nn::Module {
  explicit AttentionNetImpl(const NetParts& parts) : recomputes(parts.recomputes) {
    tokens = register_module("tokens", wave_embedding(1));
    positions = register_module("positions", wave_embedding(7));  // as many as the vocabulary: enough
    qkv = register_module("qkv", wave_linear(kFeatures, kFeatures * 2, 2));
    // The gradient of the keys' bias is zero but for rounding, of which Adam would make steps.
    qkv->bias.set_requires_grad(false);
    out = register_module("out", wave_linear(kFeatures, kFeatures, 3));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    if (parts.tensor == nullptr) {
      up = register_module("up", wave_linear(kFeatures, kHidden, 5));
      down = register_module("down", wave_linear(kHidden, kFeatures, 6));
    } else {
      cut_up = register_module("up", ColumnParallelLinear(*parts.tensor, wave_linear(kFeatures, kHidden, 5)));
      cut_down =
          register_module("down", RowParallelLinear(*parts.tensor, wave_linear(kHidden, kFeatures, 6)));
    }
    head = register_module("head", wave_linear(kFeatures, kVocabulary, 4));
    if (parts.context == nullptr) return;
    attention = register_module(
        "attention",
        ContextParallelAttention(*parts.context,
                                 ContextParallelAttentionOptions{.method = parts.method, .is_causal = true}));
  }

  torch::Tensor attend(const torch::Tensor& x, const ContextOrder& order) {
    const auto by_head = qkv(x).unflatten(-1, {kHeads + 2 * kKvHeads, -1}).transpose(1, 2);
    const auto split = by_head.split_with_sizes({kHeads, kKvHeads, kKvHeads}, 1);
    const auto y = attention.is_empty()
                       ? at::scaled_dot_product_attention(split[0], split[1].repeat_interleave(2, 1),
                                                          split[2].repeat_interleave(2, 1), {}, 0.0, true)
                       : attention(split[0], split[1], split[2], order);
    return out(y.transpose(1, 2).flatten(2));
  }

  /// Returns the losses of this rank's tokens, [examples, tokens].
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const ContextOrder order =
        attention.is_empty() ? ContextOrder({.length = kTokens}) : attention->order(kTokens);
    auto x = tokens(order.own_part(ids, 1)) + positions(order.positions());
    const auto block = [this, order](const torch::Tensor& in) { return in + attend(norm(in), order); };
    x = recomputes ? recompute(block, x) : block(x);
    x = x + (cut_up.is_empty() ? down(torch::gelu(up(x))) : cut_down(torch::gelu(cut_up(x))));
    const auto own_targets = order.own_part(targets, 1);
    return at::cross_entropy_loss(head(x).flatten(0, 1), own_targets.flatten(), {}, at::Reduction::None)
        .view(own_targets.sizes());
  }

  bool recomputes = false;
  torch::nn::Embedding tokens{nullptr}, positions{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  ColumnParallelLinear cut_up{nullptr};
  RowParallelLinear cut_down{nullptr};
  ContextParallelAttention attention{nullptr};
};
TORCH_MODULE(AttentionNet);

/// A step in two accumulated parts, with clipping and a term of the parameters.
ParallelStepResult attention_step(ReplicaContext& replica, AttentionNet& net, torch::optim::AdamW& optimizer,
                                  int step) {
  optimizer.zero_grad();
  const auto numbers = torch::arange(kExamples * kTokens).reshape({kExamples, kTokens}) * 7 + step;
  const int64_t own = kExamples / replica.num_replicas();
  const auto ids = (numbers % kVocabulary).narrow(0, replica.replica_id() * own, own);
  const auto targets = ((numbers * 5 + 3) % kVocabulary).narrow(0, replica.replica_id() * own, own);
  double loss = 0;
  const auto backward = [&](int64_t begin) {
    const auto losses = net(ids.narrow(0, begin, own / 2), targets.narrow(0, begin, own / 2));
    auto mean = compute_average_loss(replica, losses / kTokens, {.global_batch_size = kExamples});
    if (begin == 0) mean = mean + scale_regularization_loss(replica, net->out->weight.square().sum() * 0.01);
    mean.backward();
    loss += mean.item<double>();
  };
  {
    const auto held = replica.accumulate();
    backward(0);
  }
  backward(own / 2);
  return {loss, replica.apply_gradients(optimizer, {.clip_norm = 0.05})};
}

ParallelRun trained_on_one_device(int steps) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1, .seed = 3});
  auto model = strategy.scope([](ReplicaContext&) { return AttentionNet(NetParts{}); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  ParallelRun run;
  for (int step = 0; step < steps; ++step) {
    const auto results = strategy.run(attention_step, model, adam, step);
    run.losses.push_back(results[0].loss);
    run.norms.push_back(results[0].norm.item<double>());
  }
  for (const auto& item : model.primary()->named_parameters())
    run.parameters.emplace_back(item.key(), item.value().detach().clone());
  return run;
}

/// The oracle of all meshes.
const ParallelRun& whole_training() {
  static const ParallelRun run = trained_on_one_device(kSteps);
  return run;
}

StrategyOptions options_of(const Mesh& mesh) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256},
          .timeout = std::chrono::minutes(2)};
}

NetParts parts_of(ReplicaContext& replica, const Mesh& mesh, ContextMethod method) {
  return {.context = &replica.axis("context"),
          .tensor = mesh.has("tensor") ? &replica.axis("tensor") : nullptr,
          .method = method};
}

void expect_training(Strategy& strategy, const ParallelRun& whole, const NetParts& like) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    NetParts parts = parts_of(replica, strategy.mesh(), like.method);
    parts.recomputes = like.recomputes;
    return AttentionNet(parts);
  });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (int step = 0; step < kSteps; ++step) {
    const auto results = strategy.run(attention_step, model, adam, step);
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const auto at = static_cast<size_t>(step);
    // Each rank returns the loss of its replica.
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    ASSERT_NEAR(loss, whole.losses[at], kClose) << "step " << step;
    for (const auto& result : results.local_values())
      ASSERT_NEAR(result.norm.item<double>(), whole.norms[at], kClose) << "step " << step;
  }
  const auto differences = strategy.run(
      [&](ReplicaContext&, AttentionNet& net) { return difference_of_parts(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

class ContextTraining : public testing::TestWithParam<std::string> {
 protected:
  Mesh mesh() const { return parse_mesh(GetParam()); }
};

TEST_P(ContextTraining, EqualsThatOnOneDevice) {
  const auto& whole = whole_training();
  for (const auto method : {ContextMethod::kRing, ContextMethod::kAllToAll}) {
    MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
    EXPECT_EQ(strategy.num_replicas_in_sync(), mesh().num_replicas());
    expect_training(strategy, whole, {.method = method});
  }
}

TEST_P(ContextTraining, EqualsThatOnOneDeviceWithRecomputation) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  expect_training(strategy, whole_training(), {.recomputes = true});
}

TEST_P(ContextTraining, EqualsThatOnOneDeviceWithShardedState) {
  const auto& whole = whole_training();
  for (const int stage : {1, 2}) {
    SCOPED_TRACE(stage);
    auto options = options_of(mesh());
    options.sharding.stage = stage;
    MirroredStrategy strategy(cpu_devices(mesh().size()), options);
    expect_training(strategy, whole, {.method = ContextMethod::kAllToAll});
    if (mesh().size() > 4) continue;
    expect_no_worker_failed(run_strategies(
        std::vector<int>(static_cast<size_t>(mesh().size()), 1),
        [&](MultiWorkerMirroredStrategy& workers) { expect_training(workers, whole, {}); },
        [&](int, WorkerSetUp& set_up) { set_up.options = options; }));
  }
}

TEST_P(ContextTraining, EqualsThatOnOneDeviceOverWorkers) {
  const auto& whole = whole_training();
  const int ranks = mesh().size();
  for (const auto& layout :
       {std::vector<int>(static_cast<size_t>(ranks), 1), std::vector<int>{ranks / 2, ranks - ranks / 2}}) {
    SCOPED_TRACE(testing::Message() << layout.size() << " workers");
    for (const auto method : {ContextMethod::kRing, ContextMethod::kAllToAll}) {
      expect_no_worker_failed(run_strategies(
          layout,
          [&](MultiWorkerMirroredStrategy& strategy) {
            expect_training(strategy, whole, {.method = method});
          },
          [&](int, WorkerSetUp& set_up) { set_up.options = options_of(mesh()); }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ContextTraining,
                         testing::Values("context=2", "data=2,context=2", "context=2,data=2", "context=4",
                                         "context=2,tensor=2", "data=2,context=2,tensor=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

TEST(ContextTrainingTest, ARankThatThrowsReleasesTheOthersAndTheNextStepIsExact) {
  const Mesh mesh{{"data", 2}, {"context", 2}};
  const auto whole = trained_on_one_device(3);
  MirroredStrategy strategy(cpu_devices(4), options_of(mesh));
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return AttentionNet(parts_of(replica, mesh, ContextMethod::kRing)); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  const auto failing = [](ReplicaContext& replica, AttentionNet& net, torch::optim::AdamW& optimizer) {
    optimizer.zero_grad();
    if (replica.rank() == 3) throw std::runtime_error("rank 3 breaks");
    net(torch::zeros({2, kTokens}, torch::kLong), torch::zeros({2, kTokens}, torch::kLong)).sum().backward();
    replica.apply_gradients(optimizer);
  };
  for (int step = 0; step < 3; ++step) {
    const auto message = message_of<std::runtime_error>([&] { strategy.run(failing, model, adam); });
    EXPECT_THAT(message, HasSubstr("rank 3 breaks"));
    strategy.run(attention_step, model, adam, step);
  }
  const auto differences = strategy.run(
      [&](ReplicaContext&, AttentionNet& net) { return difference_of_parts(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

}  // namespace
}  // namespace lockstep
