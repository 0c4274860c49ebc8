// Streams of several workers that do not match.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/strategies/input/sharded_stream.h"
#include "lockstep/tests/support/number_stream.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Returns what each worker throws in each call. The strategies must still work after all calls.
std::vector<std::vector<std::exception_ptr>> errors_in_turn(
    const std::vector<int>& layout, size_t num_calls,
    const std::function<void(MultiWorkerMirroredStrategy&, size_t call)>& work) {
  std::vector<std::vector<std::exception_ptr>> errors(num_calls,
                                                      std::vector<std::exception_ptr>(layout.size()));
  expect_no_worker_failed(run_strategies(layout, [&](MultiWorkerMirroredStrategy& strategy) {
    for (size_t call = 0; call < num_calls; ++call) {
      try {
        work(strategy, call);
      } catch (...) {
        errors[call][static_cast<size_t>(strategy.cluster_resolver()->rank())] = std::current_exception();
      }
    }
    const auto ones = strategy.run([](ReplicaContext&) { return 1; });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ones), strategy.num_replicas_in_sync());
  }));
  return errors;
}

TEST(ShardedStreamErrors, AllWorkersRefuseByDataStreamsThatDiffer) {
  struct Case {
    std::vector<int64_t> counts;  // for each worker's stream
    const char* worker_0;
    const char* other;
  };
  const std::vector<Case> cases{{{8, 8, 7}, "worker 0's gave 4 examples", "worker 2's gave 3 examples"},
                                {{8, 4, 8}, "worker 0's gave 4 examples", "worker 1's has ended"},
                                {{4, 4, 6}, "worker 0's has ended", "worker 2's gave 2 examples"},
                                {{5, 6, 7}, "worker 0's gave 1 examples", "worker 1's gave 2 examples"}};
  std::vector<std::vector<int>> steps(cases.size(), std::vector<int>(3));
  const auto errors =
      errors_in_turn({1, 2, 1}, cases.size(), [&](MultiWorkerMirroredStrategy& strategy, size_t call) {
        const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
        auto batches = strategy
                           .distribute_dataset(
                               [&](const InputContext&) {
                                 return NumberStream(numbers_from(0, cases[call].counts[worker]));
                               },
                               {.global_batch_size = 4, .auto_shard = AutoShardPolicy::kData})
                           .map([](const Example& shard) { return shard; })
                           .take(9);
        for ([[maybe_unused]] const auto& batch : batches) ++steps[call][worker];
      });
  for (size_t call = 0; call < cases.size(); ++call) {
    for (const auto& error : errors[call]) {
      EXPECT_TRUE(is_a<ClusterError>(error) && !is_a<PeerLost>(error));
      EXPECT_THAT(text_of(error), AllOf(HasSubstr(cases[call].worker_0), HasSubstr(cases[call].other)));
    }
    EXPECT_THAT(steps[call], ElementsAre(1, 1, 1));
  }
}

TEST(ShardedStreamErrors, RefusesOptionsThatDiffer) {
  struct Case {
    DistributeStreamOptions there, here;
    const char* there_text;
    const char* here_text;
  };
  const std::vector<Case> cases{
      {{.global_batch_size = 4}, {.global_batch_size = 0}, "batches of 4", "batches of 0"},
      {{.global_batch_size = 4, .auto_shard = AutoShardPolicy::kOff},
       {.global_batch_size = 4},
       "auto_shard off",
       "auto_shard auto"},
      {{.global_batch_size = 4, .drop_remainder = true},
       {.global_batch_size = 4},
       "stream, a short one dropped,",
       "stream, auto_shard"},
      {{.global_batch_size = 4, .files = {"a", "b"}},
       {.global_batch_size = 4, .files = {"a"}},
       "2 files",
       "1 files"},
      {{.global_batch_size = 4, .files = {"a", "b"}},
       {.global_batch_size = 4, .files = {"a", "c"}},
       "file 1 'b'",
       "file 1 'c'"}};
  const auto errors =
      errors_in_turn({1, 1}, cases.size(), [&](MultiWorkerMirroredStrategy& strategy, size_t call) {
        strategy.distribute_dataset([](const InputContext&) { return NumberStream({}); },
                                    strategy.is_chief() ? cases[call].there : cases[call].here);
      });
  for (size_t call = 0; call < cases.size(); ++call) {
    for (const auto& error : errors[call]) {
      EXPECT_TRUE(is_a<ClusterError>(error));
      EXPECT_THAT(text_of(error), AllOf(HasSubstr("[dataset]"), HasSubstr(cases[call].there_text),
                                        HasSubstr(cases[call].here_text)));
    }
  }
}

TEST(ShardedStreamErrors, RefusesOptionsThatLeaveAWorkerWithoutInput) {
  const std::vector<std::pair<DistributeStreamOptions, const char*>> cases{
      {{.global_batch_size = 1, .auto_shard = AutoShardPolicy::kOff}, "but of 1 worker 0 gets none"},
      {{.global_batch_size = 0}, "1 or more, but got 0"},
      {{.global_batch_size = 4, .auto_shard = AutoShardPolicy::kFile},
       "2 or more, to divide by file, but got 0"},
      {{.global_batch_size = 4, .auto_shard = AutoShardPolicy::kFile, .files = {"a"}},
       "2 or more, to divide by file, but got 1"}};
  const auto errors =
      errors_in_turn({1, 1}, cases.size(), [&](MultiWorkerMirroredStrategy& strategy, size_t call) {
        strategy.distribute_dataset([](const InputContext&) { return NumberStream({}); }, cases[call].first);
      });
  for (size_t call = 0; call < cases.size(); ++call) {
    for (const auto& error : errors[call]) {
      EXPECT_TRUE(is_a<InvalidArgument>(error));
      EXPECT_THAT(text_of(error), HasSubstr(cases[call].second));
    }
  }
}

TEST(ShardedStreamErrors, NamesAWorkerThatHasNothingToMakeEmptyShardsOf) {
  const auto errors = run_strategies({1, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    auto batches = strategy.distribute_dataset(
        [](const InputContext& context) { return NumberStream(numbers_in_files(context.files)); },
        {.global_batch_size = 2, .files = {"0+3", "100+0"}});
    for (const auto& batch : batches)
      strategy.gather(
          strategy.run([](ReplicaContext&, const Example& shard) { return shard.target; }, batch));
  });
  EXPECT_THAT(text_of(errors[1]),
              HasSubstr("[distribute_dataset] worker 1's pipeline has not a single batch"));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

}  // namespace
}  // namespace lockstep
