// The memory of ring attention, as LibTorch's CPU allocator counts it for each rank.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"

namespace lockstep {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 32;

/// Returns the most bytes that a rank of `ranks` has at once in forward and backward over the sequence, its
/// inputs and their gradients included.
int64_t peak_of(int ranks, int64_t tokens, bool is_causal) {
  MirroredStrategy strategy(cpu_devices(ranks), {.intra_op_threads = 1, .mesh = {{"context", ranks}}});
  auto attention = strategy.scope([&](ReplicaContext& replica) {
    return ContextParallelAttention(replica.axis("context"),
                                    ContextParallelAttentionOptions{.is_causal = is_causal});
  });
  const auto peaks = strategy.run(
      [&](ReplicaContext&, ContextParallelAttention& own) {
        const CountedMemory memory;
        const ContextOrder order = own->order(tokens);
        const int64_t count = order.tokens_of(order.index());
        const auto values = [&] { return torch::rand({1, kHeads, count, kHeadDim}).requires_grad_(); };
        const auto q = values();
        const auto k = values();
        const auto v = values();
        own(q, k, v, order).square().sum().backward();
        return memory.peak();
      },
      attention);
  int64_t most = 0;
  for (const int64_t peak : peaks.local_values()) most = std::max(most, peak);
  return most;
}

/// Bytes of q, or another tensor like it, of all tokens.
int64_t bytes_of(int64_t tokens) {
  return tokens * kHeads * kHeadDim * 4;
}

/// Buffers of the kernel, which depend on its blocks alone.
constexpr int64_t kBuffers = 2 << 20;

TEST(ContextMemoryTest, PeakOfARankFallsAsOneOverTheRanks) {
  for (const bool is_causal : {false, true}) {
    for (const int64_t tokens : {1024, 2048, 4096}) {
      for (const int ranks : {2, 4}) {
        const int64_t peak = peak_of(ranks, tokens, is_causal);
        RecordProperty("peak_" + std::to_string(tokens) + "_" + std::to_string(ranks), std::to_string(peak));
        // Inputs, output, their gradients, and twice k, v and their gradients on their way.
        EXPECT_LE(peak, 24 * bytes_of(tokens) / ranks + kBuffers) << tokens << " " << ranks;
        // Scores of all pairs would be more, even those of a rank's own tokens alone.
        EXPECT_LT(peak, kBuffers + kHeads * (tokens / ranks) * (tokens / ranks) * 4 +
                            24 * bytes_of(tokens) / ranks);
      }
    }
  }
}

TEST(ContextMemoryTest, PeakGrowsWithTheTokensOfARankAndNotWithTheirSquare) {
  for (const int ranks : {2, 4}) {
    const int64_t least = peak_of(ranks, 1024, /*is_causal=*/true);
    const int64_t most = peak_of(ranks, 4096, /*is_causal=*/true);
    EXPECT_LE(most, 4 * least + kBuffers) << ranks;
  }
}

}  // namespace
}  // namespace lockstep
