// The memory that recompute() saves, as LibTorch's CPU allocator counts it.
#include <gtest/gtest.h>

#include <cstdint>

#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/strategies/nn/recompute_cases.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 512;
constexpr int64_t kWidth = 64;
constexpr int64_t kInputBytes = kRows * kWidth * 8;
constexpr int kBlocks = 4;
/// States of random generators and such.
constexpr int64_t kSmall = 40 << 10;

struct Usage {
  int64_t after_forward = 0;  ///< the result of the last block included
  int64_t peak = 0;           ///< of forward and backward
};

Usage usage_of(Recomputes recomputes) {
  torch::manual_seed(1);
  StackOfBlocks stack(recomputes, kWidth);
  const auto x = torch::randn({kRows, kWidth}, torch::kDouble).requires_grad_();
  // Gradients have their memory already.
  for (auto& parameter : stack->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  x.mutable_grad() = torch::zeros_like(x);
  const CountedMemory memory;
  auto y = stack->forward(x);
  Usage usage{.after_forward = memory.now()};
  y.backward(torch::ones_like(y));
  usage.peak = memory.peak();
  return usage;
}

/// Measures the memory that one block keeps and computes with: at least its input, its hidden layer of three
/// times that size, the same after tanh, and its mask and result.
int64_t bytes_of_a_block(bool with_backward) {
  torch::manual_seed(1);
  ResidualBlock block(kWidth);
  block->to(torch::kDouble);
  const auto x = torch::randn({kRows, kWidth}, torch::kDouble).requires_grad_();
  const CountedMemory memory;
  auto y = block->forward(x);
  const int64_t after_forward = memory.now();
  y.backward(torch::ones_like(y));
  return with_backward ? memory.peak() : after_forward;
}

TEST(RecomputeMemoryTest, ActivationsAfterForwardAreTheInputsOfTheParts) {
  EXPECT_GE(usage_of(Recomputes::kNothing).after_forward, kBlocks * 5 * kInputBytes);
  // The argument of the first block belongs to the caller.
  const auto each = usage_of(Recomputes::kEachBlock).after_forward;
  EXPECT_GE(each, kBlocks * kInputBytes);
  EXPECT_LE(each, kBlocks * kInputBytes + kSmall);
  EXPECT_LE(usage_of(Recomputes::kPairs).after_forward, kBlocks / 2 * kInputBytes + kSmall);
  EXPECT_LE(usage_of(Recomputes::kPairsAndTheirBlocks).after_forward, kBlocks / 2 * kInputBytes + kSmall);
}

TEST(RecomputeMemoryTest, PeakIsTheInputsOfThePartsAndOnePart) {
  const int64_t block = bytes_of_a_block(/*with_backward=*/true);
  const auto each = usage_of(Recomputes::kEachBlock).peak;
  EXPECT_LE(each, kBlocks * kInputBytes + block + kInputBytes + kSmall);
  EXPECT_GE(usage_of(Recomputes::kNothing).peak, each + 2 * bytes_of_a_block(/*with_backward=*/false));
}

}  // namespace
}  // namespace lockstep
