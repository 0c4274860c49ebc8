#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/parallel/parallel_mlp.h"
#include "lockstep/strategies/parallel/sequence_layer_norm.h"
#include "lockstep/strategies/parallel/vocab_parallel_cross_entropy.h"
#include "lockstep/strategies/parallel/vocab_parallel_embedding.h"

namespace lockstep {

inline constexpr int64_t kVocabulary = 12;
inline constexpr int64_t kFeatures = 8;
inline constexpr int64_t kHidden = 16;
inline constexpr int64_t kTokens = 8;  ///< of an example

/// Values without random numbers: the workers of a test share one random state, and all need the same values.
inline torch::Tensor wave_values(at::IntArrayRef sizes, double phase) {
  const int64_t count = c10::multiply_integers(sizes);
  return 0.5 * torch::sin(1.7 * torch::arange(count, torch::kDouble) + phase).reshape(sizes);
}

/// Returns `make()`, which draws no numbers from the process's generator.
template <typename Make>
auto made_apart(const Make& make) {
  const auto generator = at::detail::createCPUGenerator(1);
  const RankRandom apart(generator);
  return make();
}

inline torch::nn::Linear wave_linear(int64_t inputs, int64_t outputs, double phase) {
  auto linear = made_apart([&] { return torch::nn::Linear(inputs, outputs); });
  linear->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  linear->weight.copy_(wave_values({outputs, inputs}, phase));
  linear->bias.copy_(wave_values({outputs}, phase + 1));
  return linear;
}

inline torch::nn::Embedding wave_embedding(double phase) {
  auto embedding = made_apart([] { return torch::nn::Embedding(kVocabulary, kFeatures); });
  embedding->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  embedding->weight.copy_(wave_values({kVocabulary, kFeatures}, phase));
  return embedding;
}

/// A language model without attention, of ordinary layers: the oracle of ParallelNet. Its parameters have the
/// same names.
struct WholeNetImpl : torch::nn::Module {
  WholeNetImpl() {
    embedding = register_module("embedding", wave_embedding(1));
    up = register_module("up", wave_linear(kFeatures, kHidden, 2));
    down = register_module("down", wave_linear(kHidden, kFeatures, 3));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    head = register_module("head", wave_linear(kFeatures, kVocabulary, 4));
  }
  /// Returns a loss for each target.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const auto x = embedding(ids);
    const auto hidden = norm(x + torch::dropout(down(torch::gelu(up(x))), dropout, /*train=*/true));
    return at::cross_entropy_loss(head(hidden).flatten(0, -2), targets.flatten(), {}, at::Reduction::None);
  }

  double dropout = 0;
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear up{nullptr};
  torch::nn::Linear down{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(WholeNet);

/// The same with layers that are cut.
struct ParallelNetImpl : torch::nn::Module {
  explicit ParallelNetImpl(const ReplicaAxis& axis) {
    embedding = register_module("embedding", VocabParallelEmbedding(axis, wave_embedding(1)));
    up = register_module("up", ColumnParallelLinear(axis, wave_linear(kFeatures, kHidden, 2)));
    down = register_module("down", RowParallelLinear(axis, wave_linear(kHidden, kFeatures, 3)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    head = register_module("head", ColumnParallelLinear(axis, wave_linear(kFeatures, kVocabulary, 4)));
    loss = register_module("loss", VocabParallelCrossEntropy(axis));
  }
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const auto x = embedding(ids);
    const auto hidden = norm(x + torch::dropout(down(torch::gelu(up(x))), dropout, /*train=*/true));
    return loss(head(hidden), targets).flatten();
  }

  double dropout = 0;
  VocabParallelEmbedding embedding{nullptr};
  ColumnParallelLinear up{nullptr};
  RowParallelLinear down{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  ColumnParallelLinear head{nullptr};
  VocabParallelCrossEntropy loss{nullptr};
};
TORCH_MODULE(ParallelNet);

/// The same, and between layers that are cut, each rank has a shard of the sequence.
struct SequenceNetImpl : torch::nn::Module {
  explicit SequenceNetImpl(const ReplicaAxis& axis) {
    embedding = register_module("embedding", VocabParallelEmbedding(axis, wave_embedding(1), 1));
    up = register_module("up", ColumnParallelLinear(axis, wave_linear(kFeatures, kHidden, 2),
                                                    ColumnParallelLinearOptions{.sequence_dim = 1}));
    down = register_module("down", RowParallelLinear(axis, wave_linear(kHidden, kFeatures, 3),
                                                     RowParallelLinearOptions{.sequence_dim = -2}));
    norm = register_module("norm", SequenceLayerNorm(axis, torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    head = register_module("head", ColumnParallelLinear(axis, wave_linear(kFeatures, kVocabulary, 4),
                                                        ColumnParallelLinearOptions{.sequence_dim = 1}));
    loss = register_module("loss", VocabParallelCrossEntropy(axis));
  }
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const auto x = embedding(ids);
    TORCH_CHECK(x.size(1) == kTokens / embedding->parallel_axis().size());
    const auto hidden = norm(x + down(torch::gelu(up(x))));
    return loss(head(hidden), targets).flatten();
  }

  VocabParallelEmbedding embedding{nullptr};
  ColumnParallelLinear up{nullptr};
  RowParallelLinear down{nullptr};
  SequenceLayerNorm norm{nullptr};
  ColumnParallelLinear head{nullptr};
  VocabParallelCrossEntropy loss{nullptr};
};
TORCH_MODULE(SequenceNet);

/// The step's examples: ids and targets [examples, kTokens].
inline std::pair<torch::Tensor, torch::Tensor> examples_of_step(int step, int64_t count = 8) {
  const auto numbers = torch::arange(count * kTokens).reshape({count, kTokens}) * 7 + step;
  return {numbers % kVocabulary, (numbers * 5 + 3) % kVocabulary};
}

/// The replica's part of them.
inline std::pair<torch::Tensor, torch::Tensor> own_examples(const ReplicaContext& replica, int step) {
  const auto [ids, targets] = examples_of_step(step);
  const int64_t own = ids.size(0) / replica.num_replicas();
  return {ids.narrow(0, replica.replica_id() * own, own), targets.narrow(0, replica.replica_id() * own, own)};
}

struct ParallelStepResult {
  double loss = 0;  ///< this replica's part of the mean
  torch::Tensor norm;
};

/// A step in two accumulated parts, with clipping.
template <typename Net>
ParallelStepResult parallel_step(ReplicaContext& replica, Net& net, torch::optim::AdamW& optimizer,
                                 int step) {
  optimizer.zero_grad();
  const auto [ids, targets] = own_examples(replica, step);
  const int64_t half = ids.size(0) / 2;
  double loss = 0;
  const auto backward = [&, ids = ids, targets = targets](int64_t begin) {
    const auto losses = net->forward(ids.narrow(0, begin, half), targets.narrow(0, begin, half));
    const auto sum = losses.sum() / (8 * kTokens);
    sum.backward();
    loss += sum.template item<double>();
  };
  {
    const auto held = replica.accumulate();
    backward(0);
  }
  backward(half);
  return {loss, replica.apply_gradients(optimizer, {.clip_norm = 0.05})};
}

template <typename Net>
torch::optim::AdamW parallel_adam(Net& net) {
  return torch::optim::AdamW(net->parameters(), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

struct ParallelRun {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::vector<double> losses;
  std::vector<double> norms;
};

/// Trains with `replicas` whole replicas: the oracle.
inline ParallelRun trained_whole(int replicas, int steps, double dropout = 0) {
  MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1, .seed = 3});
  auto model = strategy.scope([&](ReplicaContext&) {
    WholeNet net;
    net->dropout = dropout;
    return net;
  });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  ParallelRun run;
  for (int step = 0; step < steps; ++step) {
    const auto results = strategy.run(parallel_step<WholeNet>, model, adam, step);
    double loss = 0;
    for (const auto& result : results.local_values()) loss += result.loss;
    run.losses.push_back(loss);
    run.norms.push_back(results[0].norm.item<double>());
  }
  for (const auto& item : model.primary()->named_parameters())
    run.parameters.emplace_back(item.key(), item.value().detach().clone());
  return run;
}

/// Returns the largest difference of a rank's parameters from its parts of the whole ones.
template <typename Net>
double difference_of_parts(Net& net, const ParallelRun& whole) {
  double most = 0;
  size_t at = 0;
  for (const auto& item : net->named_parameters()) {
    const auto& [name, expected] = whole.parameters.at(at++);
    TORCH_CHECK(name == item.key(), name, " ", item.key());
    const auto* place = sharded_parameter_of(item.value());
    const auto part = place == nullptr ? expected : part_of_values(expected, *place);
    TORCH_CHECK(part.sizes() == item.value().sizes(), name);
    if (part.numel() == 0) continue;
    most = std::max(most, (part - item.value()).abs().max().template item<double>());
  }
  return most;
}

}  // namespace lockstep
