// The memory of ring attention, as LibTorch's CPU allocator counts it for each rank.
#include <c10/util/StringUtil.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"

namespace lockstep {
namespace {

constexpr int64_t kMeasuredHeads = 8;
constexpr int64_t kMeasuredHeadDim = 32;

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
        const auto values = [&] {
          return torch::rand({1, kMeasuredHeads, count, kMeasuredHeadDim}).requires_grad_();
        };
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
  return tokens * kMeasuredHeads * kMeasuredHeadDim * 4;
}

/// The pieces in which a ring goes around: single heads, but at least 64 KiB.
int64_t pieces_of(int ranks, int64_t tokens) {
  return std::clamp<int64_t>(bytes_of(tokens) / ranks / (64 << 10), 1, kMeasuredHeads);
}

/// Buffers of the kernel, random states and such.
constexpr int64_t kBuffers = 256 << 10;

TEST(ContextMemoryTest, PeakOfARankFallsAsOneOverTheRanks) {
  for (const bool is_causal : {false, true}) {
    for (const int64_t tokens : {1024, 2048}) {
      // On one rank: inputs, output, their gradients, and what backward computes with.
      const int64_t alone = peak_of(1, tokens, is_causal);
      EXPECT_GE(alone, 8 * bytes_of(tokens));
      RecordProperty(c10::str("peak_", tokens, "_1", is_causal ? "_causal" : ""), c10::str(alone));
      EXPECT_LE(alone, 14 * bytes_of(tokens) + kBuffers);
      for (const int ranks : {2, 4}) {
        const int64_t peak = peak_of(ranks, tokens, is_causal);
        RecordProperty(c10::str("peak_", tokens, "_", ranks, is_causal ? "_causal" : ""), c10::str(peak));
        // Besides, of a piece: keys, values and their gradients that are received, those on their way, and
        // those that the next rank has yet to receive.
        const int64_t of_piece = bytes_of(tokens) / ranks / pieces_of(ranks, tokens);
        EXPECT_LE(peak, alone / ranks + 10 * of_piece + kBuffers)
            << tokens << " tokens, " << ranks << " ranks";
      }
    }
  }
}

TEST(ContextMemoryTest, PeakGrowsWithTheTokensOfARankAndNotWithTheirSquare) {
  for (const int ranks : {1, 2, 4}) {
    const int64_t least = peak_of(ranks, 512, /*is_causal=*/true);
    const int64_t most = peak_of(ranks, 2048, /*is_causal=*/true);
    EXPECT_LE(most, 6 * least + kBuffers) << ranks;  // 16 with scores of all pairs
  }
}

}  // namespace
}  // namespace lockstep
