#include "lockstep/strategies/core/cuda_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <mutex>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaGraphStep, HoldsCollectivesOfTheFunctionItself) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const auto step = [](ReplicaContext& replica, torch::Tensor& total, const torch::Tensor& x) {
    const auto sum = replica.all_reduce(ReduceOp::kSum, x * 2);
    const auto all = replica.all_gather(sum + replica.replica_id());
    total.add_(all.sum());
    return std::make_tuple(all, sum.clone());
  };
  const auto run = [&](bool enabled) {
    MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
    auto total = strategy.scope([](ReplicaContext& replica) { return torch::zeros({}, replica.device()); });
    CudaGraph graph(step, {.enabled = enabled, .warm_up_runs = 1});
    std::vector<torch::Tensor> results;
    for (int i = 0; i < 6; ++i) {
      const auto values = strategy.distribute_values_from_function([&](const ValueContext& context) {
        return torch::full({2}, i + 10 * context.replica_id_in_sync_group, torch::Device(torch::kCUDA, 0));
      });
      const auto given = strategy.run(graph, total, values);
      for (const auto& [all, sum] : given.local_values()) {
        results.push_back(all.cpu());
        results.push_back(sum.cpu());
      }
    }
    for (const auto& value : total.local_values()) results.push_back(value.cpu());
    EXPECT_EQ(graph.statistics().captures, enabled ? 1 : 0);
    EXPECT_EQ(graph.statistics().replays, enabled ? 4 : 0);
    return results;
  };
  const auto called = run(false);
  EXPECT_TRUE(bit_equal(run(true), called));
  // The sums are 2 * (i + i + 10); the second replica gathers one more.
  EXPECT_EQ(called[0].sum().item<int64_t>(), 2 * 2 * 10 * 2 + 2);
  expect_no_races();
}

// Without a distributed batch, only the replicas together know the size of the global one.
TEST(CudaGraphStep, AverageLossesCountTheirExamplesWithoutWaitingForTheDevice) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto step = [](ReplicaContext& replica, const torch::Tensor& losses) {
    return compute_average_loss(replica, losses);
  };
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  CudaGraph graph(step, {.warm_up_runs = 1});
  // Replica 1 has one example more than replica 0, and both have one more from the fourth run on.
  for (int i = 0; i < 6; ++i) {
    const int64_t fewest = i < 3 ? 2 : 3;
    const auto losses = strategy.distribute_values_from_function([&](const ValueContext& context) {
      const int replica = context.replica_id_in_sync_group;
      return torch::full({fewest + replica}, i + 10.0 * replica,
                         torch::dtype(torch::kDouble).device(torch::kCUDA, 0));
    });
    const auto averages = strategy.run(graph, losses);
    const double total = static_cast<double>(fewest * i) + static_cast<double>(fewest + 1) * (i + 10.0);
    EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::kSum, averages).item<double>(),
                     total / static_cast<double>(2 * fewest + 1))
        << "run " << i;
  }
  EXPECT_EQ(graph.statistics().captures, 2);
  EXPECT_EQ(graph.statistics().replays, 2);
}

struct SyncNetImpl : torch::nn::Cloneable<SyncNetImpl> {
  SyncNetImpl() { reset(); }
  void reset() override {
    convolution = register_module("convolution", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", SyncBatchNorm(4));
    head = register_module("head", torch::nn::Linear(4 * 4 * 4, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(norm(convolution(x))).flatten(1)); }
  torch::nn::Conv2d convolution{nullptr};
  SyncBatchNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(SyncNet);

TEST(CudaGraphStep, HoldsSyncBatchNormAndAGradScaler) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const auto step = [](ReplicaContext& replica, SyncNet& model, FusedSgd& optimizer, GradScaler& scaler,
                       const Example& batch) {
    optimizer.zero_grad();
    const auto losses =
        torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
    scaler.scale(compute_average_loss(replica, losses)).backward();
    replica.apply_gradients(optimizer, {.scaler = &scaler});
    scaler.update();
  };
  const auto run = [&](bool enabled) {
    MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
    torch::manual_seed(17);
    auto model = strategy.scope([](ReplicaContext&) { return SyncNet(); });
    auto optimizer = strategy.scope([&](ReplicaContext& replica) {
      return FusedSgd(model[replica]->parameters(), FusedSgdOptions(0.05).momentum(0.9));
    });
    auto scaler = strategy.scope([](ReplicaContext& replica) {
      return GradScaler(replica.device(), {.init_scale = 1024, .growth_interval = 4});
    });
    CudaGraph graph(step, {.enabled = enabled});
    for (int i = 0; i < 12; ++i) {
      auto data = images_of_three_classes(4);
      // An infinity in one replica's shard: no replica may step, and the scale falls.
      if (i == 9) data.data[0] = std::numeric_limits<float>::infinity();
      auto batch = strategy.distribute_values_from_function([&](const ValueContext& context) {
        const int64_t begin = 2 * context.replica_id_in_sync_group;
        const Example shard{data.data.narrow(0, begin, 2), data.target.narrow(0, begin, 2)};
        return BatchTraits<Example>::to(shard, torch::Device(torch::kCUDA, 0));
      });
      batch.set_batch_sizes({4, {2, 2}});
      strategy.run(graph, model, optimizer, scaler, batch);
    }
    EXPECT_EQ(graph.statistics().captures, enabled ? 1 : 0);
    auto state = on_host(model.primary()->parameters());
    for (const auto& replica : model.local_values())
      EXPECT_TRUE(bit_equal(on_host(replica->parameters()), state));
    state.push_back(torch::tensor(scaler.primary().get_scale()));
    return state;
  };
  const auto called = run(false);
  EXPECT_TRUE(bit_equal(run(true), called));
  EXPECT_EQ(called.back().item<float>(), 1024 * 2 * 2 / 2);
  expect_no_races();
}

template <typename Step, typename... Args>
void run_often(Strategy& strategy, CudaGraph<Step>& graph, Args&... args) {
  for (int i = 0; i < 6; ++i) strategy.run(graph, args...);
}

TEST(CudaGraphErrors, AFunctionThatMakesTheHostWaitIsRefusedAndTheStrategyGoesOn) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  auto state = strategy.scope([](ReplicaContext& replica) { return torch::ones({2}, replica.device()); });
  const auto step = [](ReplicaContext&, torch::Tensor& x) { x.mul_(1 + x.sum().item<float>()); };
  CudaGraph graph(step);
  EXPECT_THAT([&] { run_often(strategy, graph, state); },
              testing::ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("[CudaGraph] the function cannot be captured"), HasSubstr("item()"))));
  EXPECT_NO_THROW(strategy.run(step, state));
  CudaGraph other([](ReplicaContext& replica, torch::Tensor& x) {
    return replica.all_reduce(ReduceOp::kSum, x.zero_() + 1);
  });
  run_often(strategy, other, state);
  EXPECT_EQ(strategy.run(other, state).local_values()[1].sum().item<float>(), 4);
  EXPECT_GT(other.statistics().replays, 0);
  // A broken capture leaves the generators as they were.
  const auto drops = [](ReplicaContext&, torch::Tensor& x) {
    return torch::dropout(torch::ones({1000}, x.options()), 0.5, /*train=*/true).sum();
  };
  EXPECT_GT(strategy.run(drops, state).local_values()[0].item<float>(), 0);
  CudaGraph dropping(drops);
  run_often(strategy, dropping, state);
  EXPECT_NE(strategy.run(dropping, state).local_values()[0].item<float>(),
            strategy.run(dropping, state).local_values()[0].item<float>());
}

TEST(CudaGraphErrors, ResultsMustBeOnTheDevice) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"});
  CudaGraph graph([](ReplicaContext&) { return torch::ones({2}); });
  EXPECT_THAT(
      [&] { run_often(strategy, graph); },
      testing::ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("cuda:0"), HasSubstr("but got one on cpu"))));
}

TEST(CudaGraphErrors, OptimizersThatCountOnTheHostAreRefusedByName) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"});
  auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 1); });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return std::make_unique<torch::optim::SGD>(model[replica]->parameters(), 0.1);
  });
  CudaGraph step(
      [](ReplicaContext& replica, torch::nn::Linear& net, std::unique_ptr<torch::optim::SGD>& sgd) {
        sgd->zero_grad();
        net->forward(torch::ones({1, 2}, replica.device())).sum().backward();
        replica.apply_gradients(*sgd);
      });
  EXPECT_THAT([&] { strategy.run(step, model, optimizer); },
              testing::ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("[CudaGraph]"), HasSubstr("FusedSgd"), HasSubstr("torch::optim::SGD"))));
}

TEST(CudaGraphErrors, BatchesMustBeOnTheDeviceAndStayAsTheyAre) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"});
  const auto values_on = [&](torch::Device device, bool requires_grad = false) {
    return strategy.distribute_values_from_function([&](const ValueContext&) {
      return torch::ones({2}, torch::dtype(torch::kFloat).device(device)).set_requires_grad(requires_grad);
    });
  };
  const auto gpu = torch::Device(torch::kCUDA, 0);
  auto on_cpu = values_on(torch::kCPU);
  auto differentiable = values_on(gpu, true);
  auto there = values_on(gpu);
  CudaGraph reads([](ReplicaContext&, const torch::Tensor& x) { return x + 1; });
  EXPECT_THAT([&] { strategy.run(reads, on_cpu); },
              testing::ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("cuda:0"), HasSubstr("cpu"))));
  EXPECT_THAT([&] { strategy.run(reads, differentiable); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("requires no gradient")));
  CudaGraph writes([](ReplicaContext&, torch::Tensor& x) { x.add_(1); });
  EXPECT_THAT([&] { run_often(strategy, writes, there); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("changes a PerReplica argument in place")));
  EXPECT_THAT([] { CudaGraph([](ReplicaContext&) {}, {.warm_up_runs = 0}); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("1 or more warm-up runs, but got 0")));
}

TEST(CudaGraphStep, HoldsEvaluationUnderInferenceModeAndOutsideOfIt) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"});
  auto values = strategy.distribute_values_from_function(
      [](const ValueContext&) { return torch::ones({2}, torch::Device(torch::kCUDA, 0)); });
  CudaGraph graph([](ReplicaContext&, const torch::Tensor& x) { return x + 1; });
  const auto sums = [&] {
    double total = 0;
    for (int i = 0; i < 6; ++i) total += strategy.run(graph, values).local_values()[0].sum().item<double>();
    return total;
  };
  {
    const c10::InferenceMode guard;
    EXPECT_EQ(sums(), 6 * 4);
  }
  EXPECT_EQ(sums(), 6 * 4);
  EXPECT_EQ(graph.statistics().captures, 2);
}

TEST(CudaGraphStep, BeginsAnewWithAnotherStrategyOrOtherTypes) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto add = [](ReplicaContext& replica, const auto& x) {
    return replica.all_reduce(ReduceOp::kSum, torch::full({}, x, replica.device()));
  };
  MirroredStrategy two({"gpu:0"}, {.replicas_per_device = 2});
  MirroredStrategy three({"gpu:0"}, {.replicas_per_device = 3});
  CudaGraph graph(add, {.warm_up_runs = 1});
  const auto sums = [&](MirroredStrategy& strategy, const auto& x) {
    std::vector<double> found;
    for (int i = 0; i < 4; ++i) {
      const auto given = strategy.run(graph, x);
      for (const auto& sum : given.local_values()) found.push_back(sum.template item<double>());
    }
    return found;
  };
  EXPECT_EQ(sums(two, 1.5), std::vector<double>(8, 3));
  EXPECT_EQ(sums(three, 1.5), std::vector<double>(12, 4.5));
  EXPECT_EQ(sums(three, int64_t{2}), std::vector<double>(12, 6));
  EXPECT_EQ(sums(two, 1.5), std::vector<double>(8, 3));
  EXPECT_EQ(graph.statistics().captures, 4);
  EXPECT_EQ(graph.statistics().replays, 4 * 2);
}

TEST(CudaGraphStep, IsCalledOnTheCpu) {
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  CudaGraph graph([](ReplicaContext& replica, const double& x) {
    return replica.all_reduce(ReduceOp::kSum, torch::full({}, x));
  });
  double x = 2;
  run_often(strategy, graph, x);
  EXPECT_EQ(strategy.run(graph, x).local_values()[1].item<double>(), 4);
  EXPECT_EQ(graph.statistics().captures, 0);
  EXPECT_EQ(graph.statistics().replays, 0);
}

TEST(CudaGraphStep, ForgetsAFailedCapture) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  auto state = strategy.scope([](ReplicaContext& replica) { return torch::zeros({2}, replica.device()); });
  // Counted on the host, so that the calls and the capture differ.
  static int calls = 0;
  static int failing = 0;
  calls = 0;
  failing = 7;  // the capture, after three runs of two replicas
  CudaGraph graph([](ReplicaContext& replica, torch::Tensor& x) {
    static std::mutex mutex;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (++calls == failing) throw std::runtime_error("the seventh call");
    }
    x.add_(replica.all_reduce(ReduceOp::kSum, torch::ones({2}, x.options())));
  });
  EXPECT_THAT([&] { run_often(strategy, graph, state); },
              testing::ThrowsMessage<std::runtime_error>(HasSubstr("the seventh call")));
  failing = 0;
  for (auto& value : state.local_values()) value.zero_();
  run_often(strategy, graph, state);
  EXPECT_EQ(graph.statistics().captures, 1);
  EXPECT_GT(graph.statistics().replays, 0);
  for (const auto& value : state.local_values()) EXPECT_EQ(value.sum().item<float>(), 2 * 2 * 6);
}

}  // namespace
}  // namespace lockstep
