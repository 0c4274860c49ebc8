// Training: LibTorch's CPU is the oracle, bit for bit.
#include <c10/core/AutogradState.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

torch::nn::Sequential small_cnn() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)),
                               torch::nn::BatchNorm2d(4), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Conv2d(4, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                               torch::nn::Flatten(), torch::nn::Linear(8 * 4 * 4, 10));
}

/// Trains for five steps from `model`'s state. Returns the losses, and the model's parameters and buffers on
/// the CPU.
std::vector<torch::Tensor> trained(torch::nn::Sequential model, at::Device device, bool uses_engine_threads) {
  const c10::AutogradState before = c10::AutogradState::get_tls_state();
  c10::AutogradState state = before;
  state.set_multithreading_enabled(uses_engine_threads);
  c10::AutogradState::set_tls_state(state);
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2).weight_decay(1e-3));
  std::vector<torch::Tensor> results;
  for (uint64_t step = 0; step < 5; ++step) {
    const auto images = seeded_normal({6, 1, 12, 12}, step).to(device);
    const auto labels = torch::arange(6, torch::kLong).add_(static_cast<int64_t>(step)).to(device);
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(model->forward(images), labels);
    loss.backward();
    optimizer.step();
    results.push_back(loss.detach().cpu());
  }
  for (const auto& parameter : model->parameters()) results.push_back(parameter.detach().cpu());
  for (const auto& buffer : model->buffers()) results.push_back(buffer.cpu());
  c10::AutogradState::set_tls_state(before);
  return results;
}

void expect_all_equal(const std::vector<torch::Tensor>& values, const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(torch::equal(values[i], expected[i])) << "result " << i;
}

class TestDeviceTraining : public TestDevice {};

TEST_F(TestDeviceTraining, FiveStepsOfAConvolutionalNetworkEqualTheCpus) {
  const auto expected = trained(small_cnn(), at::kCPU, true);
  EXPECT_FALSE(torch::equal(expected[0], expected[4]));
  for (const bool uses_engine_threads : {true, false})
    expect_all_equal(trained(small_cnn(), test_device::device(3), uses_engine_threads), expected);
  EXPECT_TRUE(test_device::races().empty());
}

TEST_F(TestDeviceTraining, FourThreadsTrainOnFourDevicesAtOnce) {
  const auto expected = trained(small_cnn(), at::kCPU, true);
  for (const bool uses_engine_threads : {true, false}) {
    std::vector<torch::nn::Sequential> models;
    for (int i = 0; i < kNumTestDevices; ++i) models.push_back(small_cnn());
    std::vector<std::vector<torch::Tensor>> results(kNumTestDevices);
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumTestDevices; ++i) {
      threads.emplace_back([&, i] {
        at::set_num_threads(1);
        results[i] = trained(models[i], test_device::device(i), uses_engine_threads);
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& result : results) expect_all_equal(result, expected);
  }
  EXPECT_TRUE(test_device::races().empty());
}

TEST_F(TestDeviceTraining, BackwardRunsOnEachDevicesOwnThreadAndStream) {
  auto x = torch::ones({3}, torch::TensorOptions(test_device::device(2)).requires_grad(true));
  std::thread::id backward_thread;
  c10::Device backward_device(at::kCPU);
  const auto y = x * 2;
  y.register_hook([&](const torch::Tensor&) {
    backward_thread = std::this_thread::get_id();
    backward_device = c10::impl::VirtualGuardImpl(at::kPrivateUse1).getDevice();
  });
  y.sum().backward();
  EXPECT_NE(backward_thread, std::this_thread::get_id());
  EXPECT_EQ(backward_device, test_device::device(2));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({3}, 2.0f)));
}

TEST_F(TestDeviceTraining, BackwardFollowsTheStreamsOfForward) {
  const c10::impl::VirtualGuardImpl guard(at::kPrivateUse1);
  const auto device = test_device::device(1);
  const auto stream = guard.getStreamFromGlobalPool(device);
  torch::Tensor x;
  {
    const c10::StreamGuard on_stream(stream);
    x = torch::ones({3}, torch::TensorOptions(device).requires_grad(true));
    (x * x).sum().backward();
  }
  // The engine lets the caller's stream wait for the streams of backward, but that stream is this one.
  c10::Event event(at::kPrivateUse1);
  event.record(stream);
  event.block(guard.getStream(device));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({3}, 2.0f)));
  EXPECT_TRUE(test_device::races().empty());
}

}  // namespace
}  // namespace lockstep
