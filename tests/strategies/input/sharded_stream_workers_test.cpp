// Streams that distribute_dataset cuts over several workers. sharded_stream_errors_test.cpp covers refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lockstep/strategies/input/sharded_stream.h"
#include "lockstep/tests/support/number_stream.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

using ReplicaCounts = std::vector<int>;  // replicas of each worker
using Steps = std::vector<std::vector<Numbers>>;
using MakeNumbers = std::function<Numbers(const InputContext&)>;

/// The shards of a worker's replicas in each step of an epoch.
struct WorkerEpoch {
  Steps steps;
  std::vector<int64_t> sizes;  // of the global batches
};

WorkerEpoch worker_epoch(DistributedDataset<Example>& batches) {
  WorkerEpoch epoch;
  for (const auto& batch : batches) {
    epoch.steps.push_back(shards_of(batch));
    epoch.sizes.push_back(batch.batch_sizes()->global);
    for (size_t i = 0; i < epoch.steps.back().size(); ++i)
      EXPECT_EQ(batch.batch_sizes()->local[i], epoch.steps.back()[i].size());
  }
  return epoch;
}

/// Returns what each worker gets in each of two epochs; no worker may fail.
std::vector<std::vector<WorkerEpoch>> two_epochs(const ReplicaCounts& layout,
                                                 const DistributeStreamOptions& options,
                                                 const MakeNumbers& make,
                                                 DatasetPosition begin = DatasetPosition()) {
  std::vector<std::vector<WorkerEpoch>> epochs(2, std::vector<WorkerEpoch>(layout.size()));
  expect_no_worker_failed(run_strategies(layout, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
    auto batches = strategy.distribute_dataset(
        [&](const InputContext& context) { return NumberStream(make(context)); }, options);
    batches.restore(begin);
    for (auto& epoch : epochs) epoch[worker] = worker_epoch(batches);
  }));
  return epochs;
}

/// Joins the shards of all replicas of all workers in each step. All workers must have the same steps, and
/// agree on the number of examples in each.
Steps joined(const std::vector<WorkerEpoch>& workers) {
  Steps joined(workers[0].steps.size());
  for (const auto& worker : workers) {
    EXPECT_EQ(worker.steps.size(), joined.size());
    EXPECT_EQ(worker.sizes, workers[0].sizes);
    for (size_t step = 0; step < std::min(joined.size(), worker.steps.size()); ++step)
      joined[step].insert(joined[step].end(), worker.steps[step].begin(), worker.steps[step].end());
  }
  for (size_t step = 0; step < joined.size(); ++step) {
    int64_t examples = 0;
    for (const auto& shard : joined[step]) examples += static_cast<int64_t>(shard.size());
    EXPECT_EQ(workers[0].sizes[step], examples);
  }
  return joined;
}

class ShardedStreamOverWorkers : public testing::TestWithParam<ReplicaCounts> {
 protected:
  size_t num_replicas() const { return std::accumulate(GetParam().begin(), GetParam().end(), size_t{0}); }
};

INSTANTIATE_TEST_SUITE_P(Layouts, ShardedStreamOverWorkers,
                         testing::Values(ReplicaCounts{1}, ReplicaCounts{2}, ReplicaCounts{1, 1},
                                         ReplicaCounts{2, 2}, ReplicaCounts{1, 2}, ReplicaCounts{1, 1, 1},
                                         ReplicaCounts{2, 2, 2}),
                         [](const auto& info) {
                           std::string name = "Replicas";
                           for (const int count : info.param) name += "_" + std::to_string(count);
                           return name;
                         });

TEST_P(ShardedStreamOverWorkers, ByDataIsCutAsInOneProcess) {
  for (const bool drop : {false, true}) {
    const auto epochs = two_epochs(
        GetParam(), {.global_batch_size = 5, .auto_shard = AutoShardPolicy::kData, .drop_remainder = drop},
        [](const InputContext& context) {
          EXPECT_EQ(context.num_input_pipelines, 1);
          EXPECT_EQ(context.input_pipeline_id, 0);
          return numbers_from(100 * context.epoch, 12);
        });
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      EXPECT_EQ(joined(epochs[static_cast<size_t>(epoch)]),
                cut_stream(numbers_from(100 * epoch, drop ? 10 : 12), 5, num_replicas()));
    }
  }
}

TEST_P(ShardedStreamOverWorkers, ByDataGoesOnFromARestoredPosition) {
  const auto epochs =
      two_epochs(GetParam(), {.global_batch_size = 5, .auto_shard = AutoShardPolicy::kData},
                 [](const InputContext& context) { return numbers_from(100 * context.epoch, 12); }, {3, 1});
  EXPECT_EQ(joined(epochs[0]), cut_stream(numbers_from(305, 7), 5, num_replicas()));
  EXPECT_EQ(joined(epochs[1]), cut_stream(numbers_from(400, 12), 5, num_replicas()));
}

TEST_P(ShardedStreamOverWorkers, ByFileReadsEachFileOnOneWorker) {
  const std::vector<std::string> files{"0+9", "100+1", "200+4", "300+2", "400+0"};
  const auto workers = GetParam().size();
  const auto epochs =
      two_epochs(GetParam(), {.global_batch_size = 6, .auto_shard = AutoShardPolicy::kFile, .files = files},
                 [](const InputContext& context) { return numbers_in_files(context.files); });
  for (const auto& epoch : epochs) {
    auto all = flat(joined(epoch));
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, numbers_in_files(files)) << "each example once";
    for (size_t worker = 0; worker < workers; ++worker) {
      Numbers own;
      for (size_t file = worker; file < files.size(); file += workers) {
        const auto more = numbers_in_file(files[file]);
        own.insert(own.end(), more.begin(), more.end());
      }
      EXPECT_EQ(flat(epoch[worker].steps), own) << "worker " << worker << " in the order of its files";
    }
  }
}

TEST_P(ShardedStreamOverWorkers, ByFileGoesOnFromARestoredPosition) {
  const DistributeStreamOptions options{
      .global_batch_size = 6, .auto_shard = AutoShardPolicy::kFile, .files = {"0+9", "100+1", "200+4"}};
  const auto make = [](const InputContext& context) { return numbers_in_files(context.files); };
  auto expected = joined(two_epochs(GetParam(), options, make)[0]);
  expected.erase(expected.begin());
  EXPECT_EQ(joined(two_epochs(GetParam(), options, make, {0, 1})[0]), expected);
}

TEST_P(ShardedStreamOverWorkers, WithoutShardingDrawsWhatEachPipelineHas) {
  const auto epochs = two_epochs(
      GetParam(), {.global_batch_size = 6, .auto_shard = AutoShardPolicy::kOff, .files = {"a", "b"}},
      [](const InputContext& context) {
        EXPECT_THAT(context.files, ElementsAre("a", "b"));
        const int64_t pipelines = context.num_input_pipelines, id = context.input_pipeline_id;
        return numbers_from(id, (19 - id + pipelines - 1) / pipelines, pipelines);  // its share of 0 to 18
      });
  for (const auto& epoch : epochs) {
    auto all = flat(joined(epoch));
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, numbers_from(0, 19));
    for (size_t worker = 0; worker < epoch.size(); ++worker)
      EXPECT_EQ(epoch[worker].steps[0][0][0], worker) << "where its pipeline begins";
  }
}

TEST(ShardedStreamOfTwoWorkers, DrawsTheShareOfTheReplicas) {
  // Of 7 examples, worker 0's one replica of three gets floor(7 / 3) = 2, and worker 1's two get 5.
  const auto epochs = two_epochs(
      {1, 2}, {.global_batch_size = 7, .auto_shard = AutoShardPolicy::kOff}, [](const InputContext& context) {
        EXPECT_EQ(context.batch_size, context.input_pipeline_id == 0 ? 2 : 5);
        return context.input_pipeline_id == 0 ? numbers_from(0, 5) : numbers_from(100, 6);
      });
  EXPECT_EQ(joined(epochs[0]),
            (Steps{{{0, 1}, {100, 101, 102}, {103, 104}}, {{2, 3}, {105}, {}}, {{4}, {}, {}}}));
}

TEST(ShardedStreamOfTwoWorkers, ByFileDropsEachWorkersShortBatch) {
  const auto epochs = two_epochs({1, 1},
                                 {.global_batch_size = 4,
                                  .auto_shard = AutoShardPolicy::kFile,
                                  .files = {"0+5", "100+1"},
                                  .drop_remainder = true},
                                 [](const InputContext& context) { return numbers_in_files(context.files); });
  EXPECT_EQ(joined(epochs[0]), (Steps{{{0, 1}, {}}, {{2, 3}, {}}}));
}

TEST(ShardedStreamOfTwoWorkers, ByAutoIsDividedByFileWhereEachWorkerGetsOne) {
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{"0+3", "100+2"}, std::vector<std::string>{"0+5"}}) {
    const auto epochs =
        two_epochs({1, 1}, {.global_batch_size = 2, .files = files},
                   [](const InputContext& context) { return numbers_in_files(context.files); });
    EXPECT_EQ(joined(epochs[0]), files.size() == 2 ? (Steps{{{0}, {100}}, {{1}, {101}}, {{2}, {}}})
                                                   : (Steps{{{0}, {1}}, {{2}, {3}}, {{4}, {}}}));
  }
}

TEST(ShardedStreamOfTwoWorkers, WithoutAnExampleHasNoBatch) {
  for (const auto policy : {AutoShardPolicy::kData, AutoShardPolicy::kFile, AutoShardPolicy::kOff}) {
    const auto epochs =
        two_epochs({1, 2}, {.global_batch_size = 4, .auto_shard = policy, .files = {"0+0", "0+0"}},
                   [](const InputContext& context) { return numbers_in_files(context.files); });
    EXPECT_TRUE(joined(epochs[0]).empty()) << auto_shard_name(policy);
  }
}

TEST(ShardedStreamOfTwoWorkers, AnEmptyBatchServesAWorkerThatHasNothing) {
  // Its files have no examples, but their columns show what an example looks like.
  std::vector<WorkerEpoch> epoch(2);
  expect_no_worker_failed(run_strategies({2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto batches = strategy.distribute_dataset(
        [](const InputContext& context) {
          struct Once {
            Numbers numbers;
            Example get_batch(size_t) { return numbered_examples(std::exchange(numbers, {})); }
          };
          return Once{numbers_in_files(context.files)};
        },
        {.global_batch_size = 9, .auto_shard = AutoShardPolicy::kFile, .files = {"0+0", "5+3"}});
    epoch[static_cast<size_t>(strategy.cluster_resolver()->rank())] = worker_epoch(batches);
  }));
  EXPECT_EQ(joined(epoch), (Steps{{{}, {}, {5, 6, 7}}}));
}

TEST(ShardedStreamByWeights, GivesEachWorkerItsPartWhateverItReads) {
  for (const auto policy : {AutoShardPolicy::kData, AutoShardPolicy::kOff}) {
    std::vector<std::vector<int64_t>> sizes(2);
    expect_no_worker_failed(run_strategies(
        {1, 1},
        [&](MultiWorkerMirroredStrategy& strategy) {
          const int rank = strategy.cluster_resolver()->rank();
          Numbers numbers(16);
          std::iota(numbers.begin(), numbers.end(), 16 * rank);
          auto batches = strategy.distribute_dataset(
              [&](const InputContext&) {
                return NumberStream(policy == AutoShardPolicy::kData ? Numbers(16) : numbers);
              },
              {.global_batch_size = 8, .auto_shard = policy});
          for (const auto& batch : batches) {
            EXPECT_EQ(batch.batch_sizes()->global, 8) << "in both, until the first worker's stream has ended";
            sizes[static_cast<size_t>(rank)].push_back(batch.batch_sizes()->local[0]);
            if (sizes[static_cast<size_t>(rank)].size() == 2) break;
          }
        },
        [](int, WorkerSetUp& worker) {
          worker.options.replica_weights = {1, 3};
        }));
    EXPECT_THAT(sizes[0], ElementsAre(2, 2));
    EXPECT_THAT(sizes[1], ElementsAre(6, 6));
  }
}

}  // namespace
}  // namespace lockstep
