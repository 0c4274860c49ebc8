#include "lockstep/runtime/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>
#include <thread>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// The type in which the calling thread currently computes a product.
at::ScalarType type_of_a_product() {
  return torch::matmul(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

class Autocast : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Autocast, ComputesProductsInTheTypeAndSensitiveOperatorsInFloat32) {
  const auto x = torch::randn({8, 16});
  const auto weight = torch::randn({4, 16}).requires_grad_();
  const auto bias = torch::randn({4}).requires_grad_();
  const auto target = torch::randint(0, 4, {8});
  torch::Tensor product, losses;
  {
    const AutocastGuard cast(torch::kCPU, GetParam());
    product = torch::linear(x, weight, bias);
    losses = torch::cross_entropy_loss(product, target, {}, at::Reduction::None);
  }
  EXPECT_EQ(losses.scalar_type(), torch::kFloat);
  EXPECT_EQ(product.scalar_type(), GetParam());
  EXPECT_TRUE(
      torch::equal(product, torch::linear(x.to(GetParam()), weight.to(GetParam()), bias.to(GetParam()))));
  losses.sum().backward();
  EXPECT_EQ(weight.scalar_type(), torch::kFloat);
  EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
}

TEST_P(Autocast, PutsBackWhatWasBefore) {
  EXPECT_EQ(type_of_a_product(), torch::kFloat);
  const auto dtype_before = at::autocast::get_autocast_dtype(torch::kCPU);
  const bool cache_before = at::autocast::is_autocast_cache_enabled();
  {
    const AutocastGuard outer(torch::kCPU, GetParam());
    EXPECT_EQ(type_of_a_product(), GetParam());
    {
      const AutocastGuard none(torch::kCPU, torch::kFloat);
      EXPECT_EQ(type_of_a_product(), torch::kFloat);
      try {
        const AutocastGuard inner(torch::kCPU, torch::kHalf);
        EXPECT_EQ(type_of_a_product(), torch::kHalf);
        throw std::domain_error("planted");
      } catch (const std::domain_error&) {
      }
      EXPECT_EQ(type_of_a_product(), torch::kFloat);
    }
    EXPECT_EQ(type_of_a_product(), GetParam());
  }
  EXPECT_EQ(type_of_a_product(), torch::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), dtype_before);
  EXPECT_EQ(at::autocast::is_autocast_cache_enabled(), cache_before);
}

TEST_P(Autocast, IsTheCallingThreadsOwn) {
  const AutocastGuard cast(torch::kCPU, GetParam());
  at::ScalarType elsewhere{};
  std::thread([&] { elsewhere = type_of_a_product(); }).join();
  EXPECT_EQ(elsewhere, torch::kFloat);
  EXPECT_EQ(type_of_a_product(), GetParam());
}

// All threads share one cache of weight copies: whether the second use finds the copy of the first would
// depend on what other replicas do in between.
TEST_P(Autocast, AddsUpTheGradientsOfAWeightUsedTwiceInFloat32WhateverOtherThreadsDo) {
  torch::manual_seed(3);
  const auto x = torch::randn({8, 16});
  const auto start = torch::randn({16, 16});
  const auto gradient_of = [&](const auto& forward) {
    auto weight = start.clone().requires_grad_();
    forward(weight).to(torch::kFloat).square().sum().backward();
    return weight.grad();
  };
  const auto dtype = GetParam();
  const auto in_float32 = gradient_of([&](const torch::Tensor& weight) {
    return torch::linear(torch::linear(x.to(dtype), weight.to(dtype)), weight.to(dtype));
  });
  const auto in_short_type = gradient_of([&](const torch::Tensor& weight) {
    const auto copy = weight.to(dtype);
    return torch::linear(torch::linear(x.to(dtype), copy), copy);
  });
  ASSERT_FALSE(torch::equal(in_float32, in_short_type)) << "values that do not tell the two apart";
  for (const bool other_thread_clears : {false, true}) {
    const auto given = gradient_of([&](const torch::Tensor& weight) {
      const AutocastGuard cast(torch::kCPU, dtype);
      const auto once = torch::linear(x, weight);
      if (other_thread_clears) std::thread([] { at::autocast::clear_cache(); }).join();
      return torch::linear(once, weight);
    });
    EXPECT_TRUE(torch::equal(given, in_float32)) << other_thread_clears;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Autocast, testing::Values(torch::kBFloat16, torch::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(AutocastGuard, RefusesOtherTypesAndLeavesAllAsItWas) {
  for (const auto dtype : {torch::kDouble, torch::kInt}) {
    try {
      const AutocastGuard cast(torch::kCPU, dtype);
      ADD_FAILURE() << "nothing thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                std::string("[autocast] expected Float (casts nothing), BFloat16 or Half, but got ") +
                    c10::toString(dtype));
    }
    EXPECT_EQ(type_of_a_product(), torch::kFloat);
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  }
}

}  // namespace
}  // namespace lockstep
