// SyncBatchNorm across the replicas of a run: which replicas take part, what is refused, and how a failing
// replica affects the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// Two normalisations, one of them below another module.
struct TwoNormsImpl : public torch::nn::Cloneable<TwoNormsImpl> {
  TwoNormsImpl() { reset(); }
  void reset() override {
    first = register_module("first", SyncBatchNorm(3));
    rest = register_module("rest", torch::nn::Sequential(torch::nn::Linear(3, 2), SyncBatchNorm(2)));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return rest->forward(torch::tanh(first(x))); }

  SyncBatchNorm first{nullptr};
  torch::nn::Sequential rest;
};
TORCH_MODULE(TwoNorms);

class SyncBatchNormRuns : public testing::Test {
 protected:
  static constexpr int kReplicas = 3;

  SyncBatchNormRuns() { torch::manual_seed(41); }

  Mirrored<SyncBatchNorm> make_norms(int64_t features = 2) {
    return strategy_.scope([features](ReplicaContext&) { return SyncBatchNorm(features); });
  }

  /// Replica r gives [[r, r], [r + 1, r + 1]]: the mean over all is 1.5, the variance 11 / 12.
  static torch::Tensor shard_of(const ReplicaContext& replica) {
    return torch::tensor({{0.0, 0.0}, {1.0, 1.0}}).to(replica.device()) + replica.replica_id();
  }

  void expect_usable(Mirrored<SyncBatchNorm>& norms) {
    strategy_.run(
        [](ReplicaContext& replica, SyncBatchNorm& own) {
          const auto x = shard_of(replica).requires_grad_();
          const auto y = own->forward(x);
          y.square().sum().backward();
          const auto expected = (shard_of(replica) - 1.5) / std::sqrt(11.0 / 12 + 1e-5);
          EXPECT_LE(largest_difference({y.detach()}, {expected}), 1e-6);
        },
        norms);
  }

  MirroredStrategy strategy_{cpu_devices(kReplicas),
                             {.intra_op_threads = 1, .timeout = std::chrono::seconds(10)}};
};

TEST_F(SyncBatchNormRuns, BindsModulesOfScopeAndMirrorAtAnyDepth) {
  const auto whole = torch::randn({7, 3}, torch::kDouble);
  const std::vector<torch::Tensor> shards = whole.split_with_sizes({4, 1, 2});
  TwoNorms alone;  // not made by a strategy: plain batch normalisation
  auto mirrored = strategy_.mirror(alone);
  auto scoped = strategy_.scope(
      [&](ReplicaContext&) { return TwoNorms(std::dynamic_pointer_cast<TwoNormsImpl>(alone->clone())); });
  const auto expected = alone->forward(whole);
  for (auto* models : {&mirrored, &scoped}) {
    const auto outputs = strategy_.run(
        [&](ReplicaContext& replica, TwoNorms& own) {
          return own->forward(shards[static_cast<size_t>(replica.replica_id())].to(replica.device()))
              .detach();
        },
        *models);
    EXPECT_LE(largest_difference({torch::cat(values_of(outputs.local_values()))}, {expected}), 1e-12);
    for (const auto& own : models->local_values())
      EXPECT_LE(largest_difference(own->buffers(), alone->buffers()), 1e-12);
  }
}

TEST_F(SyncBatchNormRuns, SeveralModulesAndTheUsersOwnCollectivesShareAStep) {
  const auto whole = torch::randn({7, 3}, torch::kDouble);
  const std::vector<torch::Tensor> shards = whole.split_with_sizes({4, 0, 3});
  TwoNorms alone;
  auto models = strategy_.mirror(alone);
  // The user's sum is part of the loss, so its gradient is computed between those of the modules.
  const auto loss_of = [](const torch::Tensor& y, const torch::Tensor& total) {
    return (y * total.sin()).sum();
  };
  const auto input = whole.clone().requires_grad_();
  const auto y = alone->forward(input);
  loss_of(y, y.square().sum(0)).backward();

  auto inputs = strategy_.distribute_values_from_function([&](const ValueContext& context) {
    const auto replica = static_cast<size_t>(context.replica_id_in_sync_group);
    return shards[replica]
        .to(strategy_.devices()[replica].torch_device(), /*non_blocking=*/false, /*copy=*/true)
        .requires_grad_();
  });
  strategy_.run(
      [&](ReplicaContext& replica, TwoNorms& own, torch::Tensor& shard) {
        const auto own_y = own->forward(shard);
        loss_of(own_y, replica.all_reduce(ReduceOp::kSum, own_y.square().sum(0))).backward();
      },
      models, inputs);
  std::vector<torch::Tensor> gradients;
  for (const auto& shard : inputs.local_values()) gradients.push_back(shard.grad().cpu());
  EXPECT_LE(largest_difference({torch::cat(gradients)}, {input.grad()}), 1e-12);
  const auto parameters = alone->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto sum = torch::zeros_like(parameters[i]);
    for (const auto& own : models.local_values()) sum += own->parameters()[i].grad().cpu();
    EXPECT_LE(largest_difference({sum}, {parameters[i].grad()}), 1e-12) << i;
  }
}

TEST_F(SyncBatchNormRuns, BackwardIsNoCollectiveWhereTheInputHasNoGradient) {
  auto norms = make_norms();
  strategy_.run(
      [](ReplicaContext& replica, SyncBatchNorm& own) {
        const auto y = own->forward(shard_of(replica));
        if (replica.replica_id() == 1) y.sum().backward();
      },
      norms);
  EXPECT_TRUE(torch::equal(norms.local_values()[1]->bias.grad().cpu(), torch::full({2}, 2.0F)));
  EXPECT_FALSE(norms.primary()->bias.grad().defined());
}

TEST_F(SyncBatchNormRuns, AGlobalBatchWithOneValueAChannelThrowsOnEveryReplica) {
  auto norms = make_norms();
  std::atomic<int> throws = 0;
  const auto one_example = [&](ReplicaContext& replica, SyncBatchNorm& own) {
    try {
      own->forward(torch::ones({replica.replica_id() == 2 ? 1 : 0, 2}).to(replica.device()));
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected more than 1 value a channel in the global batch"));
      EXPECT_THAT(error.what(), HasSubstr("but got 1"));
      ++throws;
    }
  };
  strategy_.run(one_example, norms);
  EXPECT_EQ(throws, kReplicas);
  EXPECT_EQ(norms.primary()->num_batches_tracked.item<int64_t>(), 0);
  expect_usable(norms);
}

TEST_F(SyncBatchNormRuns, AGlobalBatchWithoutExamplesLeavesTheStatisticsUntouched) {
  auto norms = make_norms();
  expect_usable(norms);
  std::vector<std::vector<torch::Tensor>> before;
  for (const auto& own : norms.local_values()) before.push_back(values_of(own->buffers()));
  strategy_.run(
      [](ReplicaContext& replica, SyncBatchNorm& own) {
        const auto x = torch::ones({0, 2, 4, 4}).to(replica.device()).requires_grad_();
        const auto y = own->forward(x);
        EXPECT_EQ(y.sizes(), x.sizes());
        own->zero_grad();
        y.sum().backward();
        EXPECT_EQ(x.grad().sizes(), x.sizes());
        EXPECT_TRUE(torch::equal(own->weight.grad().cpu(), torch::zeros({2})));
      },
      norms);
  for (size_t replica = 0; replica < before.size(); ++replica)
    EXPECT_TRUE(bit_equal(norms.local_values()[replica]->buffers(), before[replica])) << replica;
}

TEST_F(SyncBatchNormRuns, RefusesToTrainOutsideItsStrategysRuns) {
  auto norms = make_norms();
  const auto x = torch::randn({4, 2});
  const auto outside = message_of<InvalidArgument>([&] { norms.primary()->forward(x); });
  EXPECT_THAT(outside, HasSubstr("[SyncBatchNorm] expected to train inside a run of the MirroredStrategy"));

  MirroredStrategy other(cpu_devices(kReplicas), {.intra_op_threads = 1});
  const auto forward = [&](ReplicaContext&, SyncBatchNorm& own) { own->forward(x); };
  EXPECT_THAT(message_of<InvalidArgument>([&] { other.run(forward, norms); }),
              HasSubstr("call from elsewhere"));

  const auto foreign = [&](ReplicaContext& replica) {
    if (replica.replica_id() == 0) norms.local_values()[1]->forward(x);
  };
  EXPECT_THAT(message_of<InvalidArgument>([&] { strategy_.run(foreign); }),
              HasSubstr("in replica 1's own thread"));

  // The backward of a run's forward also sums over the replicas.
  const auto outputs =
      strategy_.run([](ReplicaContext& replica,
                       SyncBatchNorm& own) { return own->forward(shard_of(replica).requires_grad_()); },
                    norms);
  EXPECT_THROW(outputs.local_values()[0].sum().backward(), InvalidArgument);
  expect_usable(norms);
}

TEST_F(SyncBatchNormRuns, BelongsToTheStrategyThatGaveItOutLast) {
  auto norms = make_norms();
  const auto x = torch::randn({4, 2});
  OneDeviceStrategy one(cpu_devices(1)[0]);
  auto taken = one.scope([&](ReplicaContext&) { return norms.primary(); });
  torch::nn::BatchNorm1d alone(2);
  const auto given = taken.primary()->forward(x.to(one.devices()[0].torch_device()));
  EXPECT_TRUE(torch::equal(given.cpu(), alone->forward(x)));
  // A destroyed strategy has no runs.
  SyncBatchNorm orphan{nullptr};
  {
    MirroredStrategy passing(cpu_devices(2), {.intra_op_threads = 1});
    orphan = passing.mirror(SyncBatchNorm(2)).primary();
  }
  EXPECT_THROW(orphan->forward(x), InvalidArgument);
  orphan->eval();
  EXPECT_EQ(orphan->forward(x.to(orphan->weight.device())).sizes(), x.sizes());
}

TEST_F(SyncBatchNormRuns, RefusesOtherShapesAndSecondDerivatives) {
  SyncBatchNorm alone(3);
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3}, {4, 2}, {1, 3, 1, 1, 1, 1}}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { alone->forward(torch::ones(shape)); }),
                HasSubstr("expected a batch of 2 to 5 dimensions, [N, 3, ...], but got ["));
  }
  auto norms = make_norms();
  const auto twice = [](ReplicaContext& replica, SyncBatchNorm& own) {
    const auto x = shard_of(replica).requires_grad_();
    torch::autograd::grad({own->forward(x).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  };
  EXPECT_THAT(message_of<InvalidArgument>([&] { strategy_.run(twice, norms); }),
              HasSubstr("expected a backward without create_graph"));
  expect_usable(norms);
}

TEST_F(SyncBatchNormRuns, FindsInputsThatWereChangedBeforeBackwardAndASecondBackward) {
  auto norms = make_norms();
  const auto changed = [](ReplicaContext& replica, SyncBatchNorm& own) {
    auto x = shard_of(replica).requires_grad_() * 1;
    const auto y = own->forward(x);
    x.zero_();
    y.sum().backward();
  };
  EXPECT_THAT(message_of<c10::Error>([&] { strategy_.run(changed, norms); }),
              HasSubstr("modified by an inplace operation"));
  const auto again = [](ReplicaContext& replica, SyncBatchNorm& own) {
    const auto y = own->forward(shard_of(replica).requires_grad_()).sum();
    y.backward();
    y.backward();
  };
  EXPECT_THAT(message_of<c10::Error>([&] { strategy_.run(again, norms); }), HasSubstr("a second time"));
  expect_usable(norms);
}

TEST_F(SyncBatchNormRuns, AFailingReplicaReleasesTheOthersAndTheStrategyWorksAgain) {
  auto norms = make_norms();
  for (const std::string place : {"before forward", "before backward", "in backward"}) {
    const auto fn = [&place](ReplicaContext& replica, SyncBatchNorm& own) {
      const bool fails = replica.replica_id() == 1;
      if (fails && place == "before forward") throw std::domain_error(place);
      const auto y = own->forward(shard_of(replica).requires_grad_());
      if (fails && place == "before backward") throw std::domain_error(place);
      // Above the module, so that this replica fails before its part of the sum.
      if (fails) y.register_hook([&](const torch::Tensor&) { throw std::domain_error(place); });
      y.sum().backward();
      ADD_FAILURE() << "replica " << replica.replica_id() << " went on";
    };
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(message_of<std::domain_error>([&] { strategy_.run(fn, norms); }), place);
    // Waits that nobody ends would last until the timeout.
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5) << place;
    expect_usable(norms);
  }
}

TEST_F(SyncBatchNormRuns, AReplicaThatLeavesItOutIsNamed) {
  auto norms = make_norms();
  const auto fn = [](ReplicaContext& replica, SyncBatchNorm& own) {
    if (replica.replica_id() != 2) own->forward(shard_of(replica));
  };
  EXPECT_THAT(message_of<CollectiveMismatch>([&] { strategy_.run(fn, norms); }),
              HasSubstr("replica 2 returned without joining"));
  expect_usable(norms);
}

TEST_F(SyncBatchNormRuns, SharesItsStateWithTorchsBatchNorm) {
  torch::nn::BatchNorm2d torchs(3);
  torchs->forward(torch::randn({4, 3, 2, 2}));
  std::stringstream stream;
  torch::save(torchs, stream);
  SyncBatchNorm loaded(3);
  torch::load(loaded, stream);
  EXPECT_TRUE(bit_equal(loaded->buffers(), torchs->buffers()));
  EXPECT_EQ(loaded->named_parameters().keys(), torchs->named_parameters().keys());
  EXPECT_EQ(loaded->named_buffers().keys(), torchs->named_buffers().keys());
  std::ostringstream printed;
  printed << loaded;
  EXPECT_EQ(printed.str(),
            "lockstep::SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
}

TEST_F(SyncBatchNormRuns, TakesEmptyBatchesWhereItIsPlain) {
  SyncBatchNorm alone(3);
  alone->forward(torch::randn({4, 3, 2, 2}));
  const auto before = values_of(alone->buffers());
  EXPECT_EQ(alone->forward(torch::ones({0, 3, 2, 2})).sizes(), torch::IntArrayRef({0, 3, 2, 2}));
  EXPECT_TRUE(bit_equal(alone->buffers(), before));
}

}  // namespace
}  // namespace lockstep
