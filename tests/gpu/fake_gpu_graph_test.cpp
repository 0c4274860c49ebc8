// Results of the fake GPU's graphs.
#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "lockstep/runtime/replicas/internal/replica_random.h"
#include "lockstep/tests/gpu/fake_gpu_graph_support.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

struct SmallNetImpl : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(4));
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(16, 3));

  torch::Tensor forward(const torch::Tensor& images) {
    const auto features = torch::max_pool2d(torch::relu(norm(conv(images))), 2);
    return linear(torch::dropout(features.flatten(1), 0.4, is_training()));
  }
};
TORCH_MODULE(SmallNet);

enum class How { kEagerly, kAsOneGraph, kAsThreeGraphs };

/// Losses, gradients, parameters and buffers of five steps on five batches.
std::vector<torch::Tensor> trained(DeviceGraphPool& pool, How how) {
  torch::manual_seed(3);
  SmallNet net;
  net->to(kGpu0);
  const auto images = torch::zeros({8, 3, 6, 6}, kGpu0);
  const auto labels = torch::zeros({8}, torch::dtype(torch::kLong).device(kGpu0));
  std::vector<torch::Tensor> momenta;
  for (const auto& parameter : net->parameters()) momenta.push_back(torch::zeros_like(parameter));
  torch::Tensor loss;
  const auto forward = [&] {
    net->zero_grad();
    loss = torch::cross_entropy_loss(net(images), labels);
  };
  const auto backward = [&] {
    loss.backward();
    loss = loss.detach();
  };
  const auto update = [&] {
    const torch::NoGradGuard no_grad;
    const auto parameters = net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      momenta[i].mul_(0.9).add_(parameters[i].grad());
      parameters[i].sub_(momenta[i], 0.1);
    }
  };
  std::vector<std::unique_ptr<DeviceGraph>> graphs;
  if (how == How::kAsThreeGraphs) {
    graphs.push_back(captured(pool, forward));
    graphs.push_back(captured(pool, backward));
    graphs.push_back(captured(pool, update));
  } else if (how == How::kAsOneGraph) {
    graphs.push_back(captured(pool, [&] { forward(), backward(), update(); }));
  }
  std::vector<torch::Tensor> results;
  for (int step = 0; step < 5; ++step) {
    images.copy_(torch::randn({8, 3, 6, 6}));
    labels.copy_(torch::randint(3, {8}));
    for (const auto& graph : graphs) graph->replay();
    if (how == How::kEagerly) forward(), backward(), update();
    results.push_back(loss.cpu());
  }
  for (const auto& parameter : net->parameters()) {
    results.push_back(parameter.grad().cpu());
    results.push_back(parameter.detach().cpu());
  }
  for (const auto& buffer : net->buffers()) results.push_back(buffer.cpu());
  return results;
}

TEST_F(FakeGpuGraph, TrainsToTheSameBitsAsWithoutGraphs) {
  const auto expected = trained(*pool_, How::kEagerly);
  EXPECT_EQ(fake_gpu::captured_graphs(), 0);
  for (const How how : {How::kAsOneGraph, How::kAsThreeGraphs}) {
    fake_gpu::forget();
    const auto results = trained(*pool_, how);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(results[i], expected[i])) << i;
    const int graphs = how == How::kAsOneGraph ? 1 : 3;
    EXPECT_EQ(fake_gpu::captured_graphs(), graphs);
    EXPECT_EQ(fake_gpu::graph_replays(), 5 * graphs);
    EXPECT_THAT(fake_gpu::races(), IsEmpty());
  }
}

TEST_F(FakeGpuGraph, CaptureComputesNothing) {
  const auto value = torch::arange(6, kGpu0).to(torch::kFloat).view({2, 3});
  const auto on_host = torch::full({2, 3}, 5.0F).pin_memory();
  const auto state = default_generator(kGpu0).get_state();
  torch::Tensor doubled;
  torch::Tensor drawn;
  torch::Tensor transposed;
  torch::Tensor index;
  const auto graph = captured(*pool_, [&] {
    doubled = value * 2;
    value.add_(1);
    transposed = value.t();
    index = value.argmax(1);
    drawn = torch::rand({4}, kGpu0);
    on_host.copy_(value, /*non_blocking=*/true);
  });
  EXPECT_TRUE(torch::equal(value.cpu().flatten(), torch::arange(6).to(torch::kFloat)));
  EXPECT_TRUE(torch::equal(on_host, torch::full({2, 3}, 5.0F)));
  EXPECT_EQ(doubled.sizes(), value.sizes());
  EXPECT_TRUE(doubled.isnan().all().item<bool>());
  EXPECT_TRUE(drawn.isnan().all().item<bool>());
  EXPECT_EQ(index.scalar_type(), torch::kLong);
  EXPECT_TRUE((index < 0).all().item<bool>());
  EXPECT_TRUE(torch::equal(default_generator(kGpu0).get_state(), state));

  fake_gpu::forget();
  graph->replay();
  EXPECT_THAT(fake_gpu::host_waits(), IsEmpty());
  EXPECT_TRUE(torch::equal(doubled.cpu().flatten(), 2 * torch::arange(6).to(torch::kFloat)));
  EXPECT_TRUE(torch::equal(transposed.cpu(), torch::arange(1, 7).to(torch::kFloat).view({2, 3}).t()));
  EXPECT_TRUE(torch::equal(on_host, value.cpu()));
  EXPECT_TRUE((index == 2).all().item<bool>());
}

TEST_F(FakeGpuGraph, RandomOperatorsDrawAnewAtEachReplay) {
  auto generator = default_generator(kGpu0).clone();
  const auto pool = make_device_graph_pool(kGpu0, generator);
  const auto ones = torch::ones({64}, kGpu0);
  torch::Tensor mask;
  torch::Tensor noise;
  const auto draw = [&] {
    mask = std::get<1>(at::_fused_dropout(ones, 0.5, generator));
    noise = torch::empty({64}, kGpu0).uniform_(0, 1, generator) + torch::rand({64}, kGpu0);
  };
  const auto seed = [&] {
    torch::manual_seed(11);
    generator.set_current_seed(12);
  };
  seed();
  std::vector<torch::Tensor> expected;
  for (int i = 0; i < 3; ++i) {
    draw();
    expected.push_back(torch::cat({mask, noise}).cpu());
  }
  seed();
  const auto graph = captured(*pool, draw);
  for (const auto& values : expected) {
    graph->replay();
    EXPECT_TRUE(torch::equal(torch::cat({mask, noise}).cpu(), values));
  }
  EXPECT_FALSE(torch::equal(expected[0], expected[1]));
}

TEST_F(FakeGpuGraph, CopiesOfPinnedMemoryHaveWhatIsInItAtTheReplay) {
  const auto from = torch::ones({4}).pin_memory();
  const auto to = torch::zeros({4}, kGpu0);
  const auto graph = captured(*pool_, [&] { to.copy_(from, /*non_blocking=*/true); });
  from.fill_(7);
  graph->replay();
  EXPECT_TRUE(torch::equal(to.cpu(), from));
}

TEST_F(FakeGpuGraph, BatchNormsRunningStatisticsMoveAtReplaysOnly) {
  const auto float_at = [](double value) { return torch::full({2}, value, kGpu0); };
  const auto mean = float_at(1);
  const auto var = float_at(1);
  const auto means = torch::full({1, 2}, 3.0, kGpu0);
  const auto invstds = torch::full({1, 2}, 0.5, kGpu0);
  const auto counts = torch::full({1}, 5.0, kGpu0);
  const auto graph = captured(*pool_, [&] {
    at::batch_norm_gather_stats_with_counts(means, means, invstds, mean, var, 0.5, /*eps=*/0, counts);
  });
  EXPECT_TRUE(torch::equal(mean, float_at(1)));
  graph->replay();
  EXPECT_TRUE(torch::equal(mean, float_at(2)));
  EXPECT_TRUE(torch::equal(var, float_at(0.5 + 0.5 * 4 * 5 / 4)));
}

TEST_F(FakeGpuGraph, OutArgumentsAreResizedAtTheCapture) {
  const auto value = torch::ones({3}, kGpu0);
  auto out = torch::empty({0}, kGpu0);
  const auto graph = captured(*pool_, [&] { torch::add_out(out, value, value); });
  EXPECT_EQ(out.sizes(), value.sizes());
  EXPECT_TRUE(out.isnan().all().item<bool>());
  graph->replay();
  EXPECT_TRUE(torch::equal(out, value * 2));
}

TEST_F(FakeGpuGraph, ReplicasDrawFromTheirOwnGenerators) {
  const auto generator = make_replica_generator({c10::DeviceType::CUDA, 0}, 5, 0);
  const auto pool = make_device_graph_pool(kGpu0, generator);
  const auto ones = torch::ones({64}, kGpu0);
  std::vector<torch::Tensor> expected;
  {
    const auto same = make_replica_generator({c10::DeviceType::CUDA, 0}, 5, 0);
    const ReplicaRandomGuard guard(same);
    for (int i = 0; i < 2; ++i) expected.push_back(torch::dropout(ones, 0.5, /*train=*/true).cpu());
  }
  torch::Tensor kept;
  const auto graph = captured(*pool, [&] {
    const ReplicaRandomGuard guard(generator);
    kept = torch::dropout(ones, 0.5, /*train=*/true);
  });
  for (const auto& values : expected) {
    graph->replay();
    EXPECT_TRUE(torch::equal(kept.cpu(), values));
  }
  EXPECT_FALSE(torch::equal(expected[0], expected[1]));
}

TEST_F(FakeGpuGraph, InferenceMayBeReplayedOutsideInferenceMode) {
  const auto value = torch::ones({2}, kGpu0);
  torch::Tensor result;
  const auto graph = captured(*pool_, [&] {
    const c10::InferenceMode inference;
    result = torch::zeros({2}, kGpu0);
    result.copy_(value * 3);
  });
  graph->replay();
  EXPECT_TRUE(torch::equal(result.cpu(), torch::full({2}, 3.0F)));
}

}  // namespace
}  // namespace lockstep
