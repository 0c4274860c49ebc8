#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {

inline constexpr double kExact = 1e-12;

/// Ranks as threads, to which modules can be bound without a strategy.
class ShardedRanks {
 public:
  explicit ShardedRanks(int size, std::chrono::milliseconds timeout = std::chrono::minutes(5))
      : group_(size, LocalAlgorithm::kSplitOverReplicas, timeout), clocks_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank)
      replicas_.push_back(std::make_shared<ReplicaCollectives>("test", rank, size));
  }

  int size() const { return group_.size(); }
  UnitOptions options(int rank) const { return {.index = rank, .size = size()}; }
  void bind(torch::nn::Module& model, int rank) const {
    for (const auto& module : model.modules()) {
      if (auto* bound = dynamic_cast<ReplicaBound*>(module.get()))
        bound->bind(replicas_[static_cast<size_t>(rank)]);
    }
  }
  /// Makes each rank's model in turn, all with the same random numbers, and binds it.
  template <typename Make>
  auto make(const Make& make) {
    std::vector<decltype(make(options(0)))> models;
    for (int rank = 0; rank < size(); ++rank) {
      torch::manual_seed(5);
      models.push_back(make(options(rank)));
      bind(*models.back(), rank);
    }
    return models;
  }

  std::vector<std::exception_ptr> errors_of(const std::function<void(int)>& function) {
    auto errors = group_.errors_of([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      ReplicaCollectives::Run run(*replicas_[self], group_.backend(rank), clocks_[self]);
      function(rank);
      run.finish();
    });
    if (std::any_of(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; })) {
      for (const auto& replica : replicas_) replica->reset();
    }
    return errors;
  }
  void run(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }

 private:
  ReplicaGroup group_;
  std::vector<std::shared_ptr<ReplicaCollectives>> replicas_;
  std::vector<WaitClock> clocks_;
};

using NamedTensors = std::map<std::string, torch::Tensor>;

/// Puts the ranks' parts of each parameter together, or those of its gradient; without a gradient, zeros.
/// Parameters that are no parts must be equal on all ranks.
template <typename Model>
NamedTensors assembled(const std::vector<Model>& models, bool gradients) {
  NamedTensors whole;
  for (size_t rank = 0; rank < models.size(); ++rank) {
    for (const auto& item : models[rank]->named_parameters()) {
      const auto& parameter = item.value();
      const auto source = gradients ? parameter.grad() : parameter;
      const auto value = (source.defined() ? source.detach() : torch::zeros_like(parameter).detach()).cpu();
      const auto* shard = sharded_parameter_of(parameter);
      if (shard == nullptr) {
        if (rank > 0) {
          EXPECT_TRUE(bit_equal({whole[item.key()]}, {value})) << item.key();
        }
        whole[item.key()] = value.clone();
        continue;
      }
      auto& all = whole[item.key()];
      if (!all.defined()) {
        all = torch::full({shard->num_elements()}, NAN, value.options())
                  .as_strided(shard->sizes, shard->strides);
      }
      EXPECT_EQ(value.sizes(), (std::vector<int64_t>{shard->length})) << item.key();
      all.as_strided({shard->num_elements()}, {1}).narrow(0, shard->offset, shard->length).copy_(value);
    }
  }
  return whole;
}

template <typename Model>
NamedTensors parameters_of(const Model& model, bool gradients) {
  return assembled(std::vector<Model>{model}, gradients);
}

inline void expect_same(const NamedTensors& given, const NamedTensors& expected, double tolerance = kExact) {
  ASSERT_EQ(given.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(given.contains(name)) << name;
    ASSERT_EQ(given.at(name).sizes(), tensor.sizes()) << name;
    if (tensor.numel() == 0) continue;
    EXPECT_LE(largest_difference({given.at(name)}, {tensor}), tolerance) << name;
  }
}

inline constexpr int kRanksOfUnits = 3;

inline torch::Tensor batch_of(int64_t rows, int64_t width) {
  torch::manual_seed(11);
  return torch::randn({rows, width}, torch::kDouble);
}

/// Runs `step` on the plain block with all rows, and on each rank's unit with its own rows, and compares the
/// sums of the gradients.
template <typename Block, typename Step, typename... Args>
void expect_equal_gradients(const Step& step, const Args&... args) {
  ShardedRanks ranks(kRanksOfUnits);
  torch::manual_seed(5);
  Block plain(args...);
  auto sharded = ranks.make([&](const UnitOptions& options) { return Sharded<Block>(options, args...); });
  expect_same(assembled(sharded, false), parameters_of(plain, false), 0);
  const auto batch = batch_of(7, 5);
  step(plain, batch);
  const auto parts = batch.tensor_split(kRanksOfUnits);
  ranks.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    step(sharded[self], parts[self]);
    EXPECT_EQ(gathered_units(*sharded[self]).counts().units, 0);
  });
  expect_same(assembled(sharded, true), parameters_of(plain, true));
}

/// x + second(tanh(first(x))), with an odd number of elements: [n, width] to the same.
struct MlpBlockImpl : torch::nn::Module {
  explicit MlpBlockImpl(int64_t width = 5, int64_t hidden = 7) {
    first = register_module("first", torch::nn::Linear(width, hidden));
    second = register_module("second", torch::nn::Linear(hidden, width));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + second(torch::tanh(first(x))); }

  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(MlpBlock);

/// Layer norm, causal attention and an MLP as in a Gpt, with residual connections: [n, t, width] to the same.
struct AttentionBlockImpl : torch::nn::Module {
  explicit AttentionBlockImpl(int64_t width = 8, int64_t heads = 2) : heads(heads) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    output = register_module("output", torch::nn::Linear(width, width));
    mlp = register_module("mlp", MlpBlock(width, 4 * width));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto parts = qkv(norm(x)).unflatten(-1, {heads, -1}).transpose(1, 2).chunk(3, -1);
    const auto attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return mlp(x + output(attended.transpose(1, 2).flatten(2)));
  }

  int64_t heads;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear qkv{nullptr}, output{nullptr};
  MlpBlock mlp{nullptr};
};
TORCH_MODULE(AttentionBlock);

/// Convolution and batch norm, in evaluation or training: [n, c, h, w] to the same. The weight's memory is
/// channels last.
struct ConvBlockImpl : torch::nn::Module {
  explicit ConvBlockImpl(int64_t channels = 3) {
    conv = register_module("conv",
                           torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(channels));
    to(torch::kDouble);
    conv->weight.set_data(conv->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(norm(conv(x))); }

  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(ConvBlock);

}  // namespace lockstep
