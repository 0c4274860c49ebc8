#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ostream>
#include <string>
#include <vector>

#include "lockstep/tests/device/test_device.h"

namespace lockstep {

/// A device whose faults, limits and races end with the test.
class TestDevice : public testing::Test {
 protected:
  void SetUp() override {
    // Threads of LibTorch's autograd engine, which the first backward starts, then take one thread as well.
    at::set_num_threads(1);
    test_device::forget();
  }
  void TearDown() override {
    for (int i = 0; i < kNumTestDevices; ++i) {
      test_device::repair(i);
      test_device::limit_memory(i, -1);
      test_device::slow_down(i, 1);
    }
    test_device::forget();
  }

 public:
  static constexpr int kNumTestDevices = 4;
};

/// The same on each device.
class EachTestDevice : public TestDevice, public testing::WithParamInterface<int> {
 protected:
  at::Device device() const { return test_device::device(GetParam()); }

  /// Expects that `values`, on this device, are on it and equal `expected`, on the CPU, bit for bit and with
  /// its strides.
  void expect_same(const torch::Tensor& values, const torch::Tensor& expected) const {
    ASSERT_EQ(values.defined(), expected.defined());
    if (!values.defined()) return;
    EXPECT_EQ(values.device(), device());
    EXPECT_EQ(values.scalar_type(), expected.scalar_type());
    ASSERT_EQ(values.sizes(), expected.sizes());
    if (!values.is_sparse()) {
      EXPECT_EQ(values.strides(), expected.strides());
    }
    // NaN equals NaN.
    EXPECT_TRUE(torch::allclose(values.cpu().to_dense(), expected.to_dense(), /*rtol=*/0, /*atol=*/0,
                                /*equal_nan=*/true));
  }

  /// Expects the same results of `function` on copies of `inputs` on this device as on the CPU.
  template <typename Function>
  void expect_same_on_device(const Function& function, const std::vector<torch::Tensor>& inputs) const {
    std::vector<torch::Tensor> on_cpu;
    std::vector<torch::Tensor> on_device;
    for (const auto& input : inputs) {
      on_cpu.push_back(input.clone());
      on_device.push_back(input.to(device()));
    }
    const std::vector<torch::Tensor> expected = function(on_cpu);
    const std::vector<torch::Tensor> values = function(on_device);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      expect_same(values[i], expected[i]);
    }
  }

  /// Likewise, and the same gradients of the inputs with a floating type.
  template <typename Function>
  void expect_same_with_gradients(const Function& function, const std::vector<torch::Tensor>& inputs) const {
    expect_same_on_device(
        [&](std::vector<torch::Tensor> given) {
          std::vector<torch::Tensor> leaves;
          for (auto& tensor : given) {
            if (tensor.is_floating_point()) leaves.push_back(tensor.set_requires_grad(true));
          }
          std::vector<torch::Tensor> results = function(given);
          torch::Tensor sum;
          for (const auto& result : results) {
            const auto term = (result * result).sum();
            sum = sum.defined() ? sum + term : term;
          }
          sum.backward();
          for (auto& result : results) result = result.detach();
          for (const auto& leaf : leaves) results.push_back(leaf.grad());
          return results;
        },
        inputs);
  }
};

inline torch::Tensor seeded_normal(torch::IntArrayRef sizes, uint64_t seed) {
  return torch::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed));
}

}  // namespace lockstep
