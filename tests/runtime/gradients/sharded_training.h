#pragma once

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/gradients/gradient_step.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/gradients/pending_gradient.h"
#include "lockstep/tests/runtime/gradients/grouped_channel.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {

/// A division of state: among `parts` ranks, and again among as many for each of `copies`.
struct ShardedLayout {
  int stage = 0;
  int parts = 1;
  int copies = 1;

  int ranks() const { return parts * copies; }
  std::string name() const {
    return "stage" + std::to_string(stage) + "_" + std::to_string(copies) + "x" + std::to_string(parts);
  }
};

using Parameters = std::vector<at::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters&)>;

/// A module of parameters alone, whose names are those of errors.
struct ParameterModule : torch::nn::Module {
  explicit ParameterModule(const Parameters& parameters) {
    for (size_t i = 0; i < parameters.size(); ++i)
      register_parameter("p" + std::to_string(i), parameters[i], parameters[i].requires_grad());
  }
};

/// Equal parameters and an optimizer on each of several ranks, which are threads, trained as a strategy does.
class ShardedTraining {
 public:
  ShardedTraining(const ShardedLayout& layout, const std::function<Parameters()>& make_parameters,
                  const MakeOptimizer& make_optimizer, const BucketOptions& buckets)
      : layout_(layout),
        threads_(layout.ranks(), 1),
        directory_(std::make_shared<ParameterDirectory>()),
        holds_(static_cast<size_t>(layout.ranks())) {
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<torch::optim::Optimizer*> optimizers;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      parameters_.push_back(make_parameters());
      modules_.push_back(std::make_shared<ParameterModule>(parameters_.back()));
      optimizers_.push_back(make_optimizer(parameters_.back()));
      modules.push_back(modules_.back());
      optimizers.push_back(optimizers_.back().get());
    }
    directory_->add(modules);
    OptimizerGroup::Options options{.buckets = buckets, .is_accumulating = [this](int rank) {
                                      return holds_[static_cast<size_t>(rank)] != 0;
                                    }};
    options.sharding.stage = layout.stage;
    if (layout.copies > 1) {
      options.sharding.parts = grouped_channel(groups(layout.copies, layout.parts, false));
      options.sharding.copies = grouped_channel(groups(layout.parts, layout.copies, true));
    }
    group_ = std::make_shared<OptimizerGroup>(
        optimizers,
        std::make_unique<LocalChannel>(layout.ranks(), LocalAlgorithm::kSplitOverReplicas,
                                       std::chrono::minutes(5)),
        threads_, directory_, std::move(options));
  }

  int ranks() const { return layout_.ranks(); }
  OptimizerGroup& group() { return *group_; }
  Parameters& parameters(int rank) { return parameters_[static_cast<size_t>(rank)]; }
  torch::optim::Optimizer& optimizer(int rank) { return *optimizers_[static_cast<size_t>(rank)]; }
  ShardedParameters& sharded(int rank) { return *group_->sharded(rank); }
  void hold(int rank, bool held) { holds_[static_cast<size_t>(rank)] = held ? 1 : 0; }

  void reduce(int rank) {
    group_->check_parameters(rank);
    group_->reducer(rank)->finish();
    group_->reducer(rank)->gather();
  }
  at::Tensor apply(int rank, const ApplyOptions& options = {}) {
    group_->check_parameters(rank);
    group_->reducer(rank)->finish();
    auto norm = clip_and_step(*group_, rank, optimizer(rank), options);
    group_->reducer(rank)->mark_applied();
    group_->count_step(rank);
    return norm;
  }

  /// Returns each rank's error, null if it returned. The training is usable again afterwards, if its state
  /// is.
  std::vector<std::exception_ptr> errors_of(const std::function<void(int)>& function) {
    const auto channels = group_->channels();
    for (auto* channel : channels) channel->enter();
    auto errors = threads_.run(
        [&](int rank) {
          group_->prepare(rank);
          function(rank);
          for (auto* channel : channels) channel->leave(rank);
        },
        [&](int, const std::exception_ptr&) {
          for (auto* channel : channels) channel->abort("another replica failed");
        });
    if (std::all_of(errors.begin(), errors.end(), [](const auto& error) { return error == nullptr; })) {
      for (auto* channel : channels) channel->check_complete();
      return errors;
    }
    group_->check_steps();
    for (auto* channel : channels) channel->reset();
    for (int rank = 0; rank < ranks(); ++rank) group_->reducer(rank)->reset();
    return errors;
  }
  void run(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) ASSERT_EQ(message_of<std::exception>(error), "no error");
  }
  /// Returns the first InvalidArgument that is not a consequence of another rank's error.
  std::string refusal_of(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) {
      if (!error || message_of<CollectiveAborted>(error) == "another replica failed") continue;
      try {
        std::rethrow_exception(error);
      } catch (const InvalidArgument& refused) {
        return refused.what();
      } catch (const c10::Error& caught) {
        try {
          rethrow_pending(caught.what_without_backtrace());
        } catch (const InvalidArgument& refused) {
          return refused.what();
        }
        return std::string("another error: ") + caught.what_without_backtrace();
      }
    }
    return "no error";
  }

 private:
  /// Returns `count` groups of `size` ranks: neighbours, or those that are `count` apart.
  static std::vector<std::vector<int>> groups(int count, int size, bool are_apart) {
    std::vector<std::vector<int>> groups(static_cast<size_t>(count));
    for (int group = 0; group < count; ++group) {
      for (int place = 0; place < size; ++place)
        groups[static_cast<size_t>(group)].push_back(are_apart ? place * count + group
                                                               : group * size + place);
    }
    return groups;
  }

  // A pool of the test's own thread would slow down those of the ranks.
  const IntraOpThreadsGuard no_pool_{1};
  const ShardedLayout layout_;
  ReplicaThreads threads_;
  std::shared_ptr<ParameterDirectory> directory_;
  std::vector<Parameters> parameters_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  std::vector<char> holds_;  // only its own rank's thread uses an entry
  std::shared_ptr<OptimizerGroup> group_;
};

/// Parameters of many shapes, in float64: larger than a bucket of kShardedBuckets, smaller than the number of
/// ranks, empty, of no dimension, channels_last and transposed.
inline Parameters odd_parameters() {
  auto generator = at::detail::createCPUGenerator(7);
  const auto random = [&](at::IntArrayRef sizes) { return torch::randn(sizes, generator, torch::kDouble); };
  Parameters parameters{random({30, 20}),
                        random({7}),
                        random({}),
                        random({0, 4}),
                        random({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast),
                        random({40, 30}),
                        random({3}),
                        random({9, 9}),
                        random({6, 4}).t(),
                        random({2})};
  for (auto& parameter : parameters) parameter.set_requires_grad(true);
  return parameters;
}

inline constexpr BucketOptions kShardedBuckets{.first_bucket_bytes = 200, .bucket_bytes = 3000};

/// A loss of some parameters, other for each step and rank, whose gradients depend on the parameters.
inline at::Tensor odd_loss(const Parameters& parameters, int step, int rank,
                           const std::vector<size_t>& unused = {}) {
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (std::find(unused.begin(), unused.end(), i) != unused.end()) continue;
    auto generator = at::detail::createCPUGenerator(1000 * static_cast<uint64_t>(step) +
                                                    100 * static_cast<uint64_t>(rank) + i);
    const at::Tensor target = torch::randn(parameters[i].sizes(), generator, torch::kDouble);
    loss = loss + (parameters[i] - target).pow(2).sum() + (parameters[i] * target).sin().sum();
  }
  return loss;
}

/// Expects values within 1e-12 of the oracle's, relative to the largest, on every rank, and the same bits on
/// all of them.
inline void expect_parameters(ShardedTraining& training, const Parameters& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    for (int rank = 0; rank < training.ranks(); ++rank) {
      const at::Tensor& given = training.parameters(rank)[i];
      EXPECT_TRUE(torch::allclose(given, expected[i], 1e-12, 1e-12))
          << "rank " << rank << ", parameter " << i << ", off by "
          << (given.numel() > 0 ? (given - expected[i]).abs().max().item<double>() : 0);
      EXPECT_TRUE(torch::equal(given, training.parameters(0)[i])) << "rank " << rank << ", parameter " << i;
      EXPECT_EQ(given.strides(), expected[i].strides()) << "parameter " << i;
    }
  }
}

}  // namespace lockstep
