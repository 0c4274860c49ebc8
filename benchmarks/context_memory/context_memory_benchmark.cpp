// Measures the memory of causal attention over sequences that are cut along a context axis, and prints it as
// a table in Markdown: the most that LibTorch's CPU tensors had at a time in forward and backward, inputs and
// gradients included, divided by the number of ranks, which are threads of this process.

#include <c10/util/StringUtil.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "lockstep/benchmarks/context_memory/context_memory_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"

namespace lockstep::benchmarks {
namespace {

/// Returns the bytes of a rank.
int64_t peak_of_rank(const ContextMemoryOptions& options, int ranks, int64_t tokens) {
  MirroredStrategy strategy(cpu_devices(ranks), {.intra_op_threads = 1, .mesh = {{"context", ranks}}});
  const ContextParallelAttentionOptions how{
      .method = options.is_all_to_all ? ContextMethod::kAllToAll : ContextMethod::kRing, .is_causal = true};
  auto attention = strategy.scope(
      [&](ReplicaContext& replica) { return ContextParallelAttention(replica.axis("context"), how); });
  const auto pass = [&](ReplicaContext&, ContextParallelAttention& own) {
    const ContextOrder order = own->order(tokens);
    const auto values = [&](int64_t heads) {
      return torch::rand({1, heads, order.tokens_of(order.index()), options.head_width}).requires_grad_();
    };
    const auto queries = values(options.heads);
    const auto keys = values(options.heads);
    const auto own_values = values(options.heads);
    own(queries, keys, own_values, order).square().sum().backward();
  };
  // Measures the second pass: in the first, buffers of the exchange are made.
  strategy.run(pass, attention);
  const int64_t before = measurement::counted_bytes();
  measurement::restart_counted_peak();
  strategy.run(pass, attention);
  return (measurement::counted_peak() - before) / ranks;
}

int run(int argc, char** argv) {
  const auto options = parse_context_memory(argc, argv);
  measurement::count_cpu_tensors();
  std::printf("MB (10^6 bytes) of a rank, causal %s, %d heads of %d, float32\n\n| tokens |",
              options.is_all_to_all ? "all-to-all" : "ring", static_cast<int>(options.heads),
              static_cast<int>(options.head_width));
  for (const int ranks : options.ranks) std::printf(" %d %s |", ranks, ranks == 1 ? "rank" : "ranks");
  std::printf("\n|---|");
  for (size_t i = 0; i < options.ranks.size(); ++i) std::printf("---|");
  for (const int64_t tokens : options.tokens) {
    std::printf("\n| %lld |", static_cast<long long>(tokens));
    for (const int ranks : options.ranks) {
      std::printf(" %.1f |", static_cast<double>(peak_of_rank(options, ranks, tokens)) / 1e6);
      std::fflush(stdout);
    }
  }
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
