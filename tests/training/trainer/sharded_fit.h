#pragma once

#include <c10/util/accumulate.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep::testing {

/// Values without random numbers: the workers of a test share one random state, and all need the same values.
inline torch::Tensor waves(at::IntArrayRef sizes, double phase) {
  const int64_t count = c10::multiply_integers(sizes);
  return 0.5 * torch::sin(1.7 * torch::arange(count, torch::kDouble) + phase).reshape(sizes);
}

/// A block with statistics, and with fewer elements in one parameter than replicas.
struct FitBlockImpl : torch::nn::Module {
  explicit FitBlockImpl(double phase) {
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    norm->to(torch::kDouble);
    weight = register_parameter("weight", waves({6, 6}, phase));
    scale = register_parameter("scale", torch::ones({1}, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + scale * torch::tanh(torch::linear(norm(x), weight));
  }

  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor weight, scale;
};
TORCH_MODULE(FitBlock);

/// Two blocks, and a layer that every replica has whole: [n, 6] to [n, 3].
template <typename AnyBlock>
struct FitNetImpl : torch::nn::Module {
  template <typename... Options>
  explicit FitNetImpl(const Options&... options) {
    first = register_module("first", AnyBlock(options..., 1.0));
    second = register_module("second", AnyBlock(options..., 2.0));
    output = register_parameter("output", waves({3, 6}, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(second(first(x)), output); }

  AnyBlock first{nullptr}, second{nullptr};
  torch::Tensor output;
};
using WholeFitNet = torch::nn::ModuleHolder<FitNetImpl<FitBlock>>;
using UnitFitNet = torch::nn::ModuleHolder<FitNetImpl<Sharded<FitBlock>>>;

/// A mesh of replicas, and what is cut over its last axis: 1 the optimizer's state, 2 gradients too, 3 units.
struct ShardedLayout {
  Mesh mesh;
  int stage = 0;

  int replicas() const {
    int count = 1;
    for (const auto& axis : mesh.axes()) count *= axis.size;
    return count;
  }
  std::string str() const { return mesh.str() + " at stage " + std::to_string(stage); }
  StrategyOptions options() const {
    StrategyOptions options{.intra_op_threads = 1, .seed = 1, .mesh = mesh};
    if (stage < 3) options.sharding.stage = stage;
    options.buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256};
    return options;
  }
};

/// Layouts of so many replicas, the first of which divides nothing.
inline std::vector<ShardedLayout> sharded_layouts(int replicas) {
  std::vector<ShardedLayout> layouts{{Mesh{{"data", replicas}}, 0}};
  for (const int stage : {1, 2, 3}) {
    layouts.push_back({Mesh{{"shard", replicas}}, stage});
    if (replicas == 4) layouts.push_back({Mesh{{"data", 2}, {"shard", 2}}, stage});
  }
  return layouts;
}

inline constexpr int64_t kFitBatch = 8;

/// Five batches.
inline Example fit_examples() {
  const auto data = 2 * waves({5 * kFitBatch, 6}, 4);
  return {data, data.narrow(1, 0, 3).argmax(1)};
}

/// A Trainer whose state is divided or not.
template <typename Net>
class ShardedFit {
 public:
  explicit ShardedFit(Strategy& made_by)
      : strategy(made_by),
        trainer(
            made_by, [](ReplicaContext& replica) { return make(replica); },
            [](const auto& parameters) {
              return FusedAdamW(parameters, FusedAdamWOptions(0.02).weight_decay(0.1));
            },
            cross_entropy) {}

  History fit(int64_t epochs, Callbacks callbacks, const Example& examples = fit_examples(),
              int64_t epochs_done = 0) {
    return trainer.fit(examples.data, examples.target,
                       {.epochs = epochs,
                        .callbacks = std::move(callbacks),
                        .batches = {.global_batch_size = kFitBatch},
                        .epochs_done = epochs_done});
  }

  /// Copies on the CPU of whole parameters and combined buffers, on worker 0 and on no other.
  NamedTensors weights() {
    NamedTensors copies;
    for (const auto& [name, tensor] : whole_state_dict(strategy, trainer.model()))
      copies.emplace_back(name, tensor.cpu().clone());
    return copies;
  }

  Strategy& strategy;
  Trainer<Net> trainer;

 private:
  static Net make(ReplicaContext& replica) {
    if constexpr (std::same_as<Net, WholeFitNet>) {
      return Net();
    } else {
      return Net(along(replica.axis("shard")));
    }
  }
};

template <typename Function>
void with_fit_of(Strategy& strategy, const ShardedLayout& layout, const Function& function) {
  if (layout.stage < 3) {
    ShardedFit<WholeFitNet> fit(strategy);
    function(fit);
  } else {
    ShardedFit<UnitFitNet> fit(strategy);
    function(fit);
  }
}

/// Calls `function` with a fit of this layout by threads.
template <typename Function>
void with_fit(const ShardedLayout& layout, const Function& function) {
  MirroredStrategy strategy(cpu_devices(layout.replicas()), layout.options());
  with_fit_of(strategy, layout, function);
}

/// Calls `function` with the fits of two workers, each with half of the replicas.
template <typename Function>
void with_fit_of_workers(const ShardedLayout& layout, const Function& function) {
  expect_no_worker_failed(run_strategies(
      {layout.replicas() / 2, layout.replicas() / 2},
      [&](MultiWorkerMirroredStrategy& strategy) { with_fit_of(strategy, layout, function); },
      [&](int, WorkerSetUp& set_up) { set_up.options = layout.options(); }));
}

/// Expects the same names, and values that differ by `tolerance` at most.
inline void expect_near(const NamedTensors& given, const NamedTensors& expected, double tolerance = 1e-12) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(given[i].first, expected[i].first);
    ASSERT_EQ(given[i].second.sizes(), expected[i].second.sizes()) << given[i].first;
    const auto difference = (given[i].second - expected[i].second).abs().max().item<double>();
    EXPECT_LE(difference, tolerance) << given[i].first;
  }
}

}  // namespace lockstep::testing
