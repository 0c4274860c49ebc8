#include <benchmark/benchmark.h>
#include <torch/types.h>

#include <memory>

#include "lockstep/runtime/local_backend.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::chrono::minutes kTimeout{1};

/// One thread a rank; bytes/s counts the tensor once a rank, as a user sees it.
void all_reduce(::benchmark::State& state, const std::shared_ptr<LocalGroup>& group) {
  at::set_num_threads(1);
  const int64_t bytes = state.range(0);
  std::vector<at::Tensor> tensors{at::ones({bytes / static_cast<int64_t>(sizeof(float))})};
  // A sum would grow without bound from one iteration to the next.
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  const auto& backend = group->backend(state.thread_index());
  for (auto _ : state) backend->allreduce(tensors, options)->wait(kNoTimeout);
  state.SetBytesProcessed(state.iterations() * bytes);
}

void add_case(const char* name, LocalAlgorithm algorithm, int num_ranks) {
  auto group = std::make_shared<LocalGroup>(num_ranks, algorithm, kTimeout);
  ::benchmark::RegisterBenchmark(name, [group](::benchmark::State& state) { all_reduce(state, group); })
      ->RangeMultiplier(8)
      ->Range(64 << 10, 32 << 20)
      ->Threads(num_ranks)
      ->UseRealTime();
}

/// The least that any all-reduce of two tensors does, in one thread: add, scale, copy back.
void one_thread(::benchmark::State& state) {
  at::set_num_threads(1);
  const int64_t bytes = state.range(0);
  at::Tensor first = at::ones({bytes / static_cast<int64_t>(sizeof(float))});
  at::Tensor second = at::ones_like(first);
  for (auto _ : state) {
    first.add_(second).div_(2);
    second.copy_(first);
  }
  state.SetBytesProcessed(2 * state.iterations() * bytes);
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  using lockstep::LocalAlgorithm;
  ::benchmark::Initialize(&argc, argv);
  if (::benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const int num_ranks : {2, 4}) {
    lockstep::benchmarks::add_case("split_over_replicas", LocalAlgorithm::kSplitOverReplicas, num_ranks);
    lockstep::benchmarks::add_case("one_device", LocalAlgorithm::kOneDevice, num_ranks);
  }
  ::benchmark::RegisterBenchmark("one_thread_alone", lockstep::benchmarks::one_thread)
      ->RangeMultiplier(8)
      ->Range(64 << 10, 32 << 20)
      ->UseRealTime();
  ::benchmark::RunSpecifiedBenchmarks();
}
