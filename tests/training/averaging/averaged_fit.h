#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep::testing {

/// Has BatchNorm, whose statistics differ between replicas, and draws random numbers.
struct NormNetImpl : torch::nn::Module {
  NormNetImpl() {
    first = register_module("first", torch::nn::Linear(6, 5));
    norm = register_module("norm", torch::nn::BatchNorm1d(5));
    dropout = register_module("dropout", torch::nn::Dropout(0.2));
    last = register_module("last", torch::nn::Linear(5, 3));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    first->weight.copy_(torch::linspace(-1, 1, 30, torch::kDouble).reshape({5, 6}));
    last->weight.copy_(torch::linspace(1, -1, 15, torch::kDouble).reshape({3, 5}));
    first->bias.zero_();
    last->bias.zero_();
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(dropout(norm(first(x)).tanh())); }

  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(NormNet);

using Tensors = std::vector<torch::Tensor>;

/// On the CPU.
inline Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

/// Copies of a model's parameters and buffers.
struct Weights {
  explicit Weights(const torch::nn::Module& module)
      : parameters(copies_of(module.parameters())), buffers(copies_of(module.buffers())) {}
  Tensors parameters;
  Tensors buffers;
};

/// 16 examples in batches of 8, so that no shard is too small for BatchNorm on two replicas.
struct AveragedFit {
  static constexpr int64_t kBatch = 8;
  static constexpr int64_t kSteps = 2;  // of an epoch

  explicit AveragedFit(int replicas = 2) : strategy(seeded_devices(replicas), {.intra_op_threads = 1}) {
    torch::manual_seed(21);
    data = torch::randn({16, 6}, torch::kDouble);
    target = torch::randint(0, 3, {16});
    torch::manual_seed(17);
    trainer.emplace(
        strategy, [](ReplicaContext&) { return NormNet(); }, momentum_sgd(), cross_entropy);
  }

  /// The replicas' random streams begin with the process's seed.
  static std::vector<std::string> seeded_devices(int replicas) {
    torch::manual_seed(11);
    return cpu_devices(replicas);
  }

  History fit(int64_t epochs, Callbacks callbacks) {
    const detail::TensorPairs pairs(data, target);
    return trainer->fit(pairs,
                        {.epochs = epochs,
                         .validation = strategy.distribute_dataset(pairs, {.global_batch_size = kBatch}),
                         .callbacks = std::move(callbacks),
                         .batches = {.global_batch_size = kBatch, .shuffle_seed = 5}});
  }

  /// The weights of each replica.
  std::vector<Weights> weights() {
    std::vector<Weights> all;
    for (const auto& model : trainer->model().local_values()) all.emplace_back(*model);
    return all;
  }

  MirroredStrategy strategy;
  torch::Tensor data, target;
  std::optional<Trainer<NormNet>> trainer;
};

/// Notes what a fit's models hold at some moments.
class NoteWeights : public Callback {
 public:
  void on_step_end(FitState& state) override { after_steps.push_back(of(state)); }
  void on_test_begin(FitState& state) override { in_validation.push_back(of(state)); }
  void on_epoch_end(FitState& state) override { at_epoch_ends.push_back(of(state)); }

  std::vector<std::vector<Weights>> after_steps;  // each with the weights of each replica
  std::vector<std::vector<Weights>> in_validation;
  std::vector<std::vector<Weights>> at_epoch_ends;

 private:
  static std::vector<Weights> of(FitState& state) {
    std::vector<Weights> all;
    for (const auto& module : state.objects().modules) all.emplace_back(*module);
    return all;
  }
};

inline void expect_bits(const Tensors& actual, const Tensors& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(torch::equal(actual[i], expected[i])) << what << " " << i;
}

inline void expect_near(const Tensors& actual, const Tensors& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-12, 1e-12))
        << what << " " << i << ": " << actual[i] << " instead of " << expected[i];
}

}  // namespace lockstep::testing
