#include "lockstep/strategies/distributed_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "lockstep/strategies/mirrored_strategy.h"
#include "lockstep/tests/strategies/message_of.h"
#include "lockstep/tests/strategies/numbered_dataset.h"

namespace lockstep {
namespace {

using Epoch = std::vector<std::vector<Numbers>>;

/// Example number 5 cannot be read while `damaged` is true.
class DamagedDataset {
 public:
  explicit DamagedDataset(std::shared_ptr<std::atomic<bool>> damaged) : damaged_(std::move(damaged)) {}
  std::optional<size_t> size() const { return 12; }
  Example get_batch(c10::ArrayRef<size_t> indices) const {
    if (*damaged_ && std::find(indices.begin(), indices.end(), 5U) != indices.end())
      throw std::domain_error("example 5 is damaged");
    return numbered_dataset(12).get_batch(indices);
  }

 private:
  std::shared_ptr<std::atomic<bool>> damaged_;
};

class OnReplicas {
 public:
  explicit OnReplicas(int replicas) : strategy_(cpu_devices(replicas), {.intra_op_threads = 1}) {}
  MirroredStrategy* operator->() { return &strategy_; }

 private:
  MirroredStrategy strategy_;
};

TEST(DistributedDataset, CutsEachGlobalBatchByTheCeilingOverReplicas) {
  OnReplicas three(3);
  auto batches = three->distribute_dataset(numbered_dataset(7), {.global_batch_size = 4});
  EXPECT_EQ(epoch_of(batches), (Epoch{{{0, 1}, {2, 3}, {}}, {{4}, {5}, {6}}}));
  OnReplicas two(2);
  auto uneven = two->distribute_dataset(numbered_dataset(14), {.global_batch_size = 8});
  EXPECT_EQ(epoch_of(uneven).back(), (std::vector<Numbers>{{8, 9, 10}, {11, 12, 13}}));
}

TEST(DistributedDataset, TellsTheSizesOfGlobalBatchAndShards) {
  OnReplicas three(3);
  auto batches = three->distribute_dataset(numbered_dataset(7), {.global_batch_size = 4});
  std::vector<BatchSizes> sizes;
  for (const auto& batch : batches) sizes.push_back(*batch.batch_sizes());
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_EQ(sizes[0].global, 4);
  EXPECT_EQ(sizes[0].local, (Numbers{2, 2, 0}));
  EXPECT_EQ(sizes[1].global, 3);
  EXPECT_EQ(sizes[1].local, (Numbers{1, 1, 1}));
}

TEST(DistributedDataset, AnEmptyShardKeepsTypesAndShapes) {
  OnReplicas two(2);
  auto batches = two->distribute_dataset(numbered_dataset(1), {.global_batch_size = 4});
  for (const auto& batch : batches) {
    const Example& empty = batch.local_values()[1];
    EXPECT_EQ(empty.data.sizes(), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(empty.data.scalar_type(), torch::kDouble);
    EXPECT_EQ(empty.target.scalar_type(), torch::kLong);
  }
}

TEST(DistributedDataset, ABatchSmallerThanTheReplicasLeavesSomeEmpty) {
  OnReplicas four(4);
  auto batches = four->distribute_dataset(numbered_dataset(3), {.global_batch_size = 2});
  EXPECT_EQ(epoch_of(batches), (Epoch{{{0}, {1}, {}, {}}, {{2}, {}, {}, {}}}));
}

TEST(DistributedDataset, ShufflesInTheSameOrderForEveryNumberOfReplicas) {
  for (int replicas = 1; replicas <= 4; ++replicas) {
    OnReplicas strategy(replicas);
    auto batches =
        strategy->distribute_dataset(numbered_dataset(23), {.global_batch_size = 5, .shuffle_seed = 11});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const auto order = epoch_permutation(23, 11, epoch);
      EXPECT_EQ(flat(epoch_of(batches)), Numbers(order.begin(), order.end()))
          << replicas << " epoch " << epoch;
    }
  }
}

TEST(DistributedDataset, DropsTheRemainderAndCountsBatches) {
  OnReplicas two(2);
  const auto batches_of = [&](int64_t n, bool drop) {
    return two->distribute_dataset(numbered_dataset(n), {.global_batch_size = 4, .drop_remainder = drop});
  };
  for (const int64_t n : {0, 1, 3, 4, 5, 8, 11}) {
    auto kept = batches_of(n, false);
    EXPECT_EQ(kept.size(), (n + 3) / 4);
    EXPECT_EQ(static_cast<int64_t>(epoch_of(kept).size()), (n + 3) / 4);
    auto dropped = batches_of(n, true);
    EXPECT_EQ(dropped.size(), n / 4);
    EXPECT_EQ(static_cast<int64_t>(flat(epoch_of(dropped)).size()), n / 4 * 4);
  }
}

TEST(DistributedDataset, RefusesBatchSizesAndWorkersThatCannotBe) {
  OnReplicas two(2);
  for (const int64_t size : {int64_t{0}, int64_t{-4}}) {
    const auto message = message_of<InvalidArgument>(
        [&] { two->distribute_dataset(numbered_dataset(4), {.global_batch_size = size}); });
    EXPECT_NE(message.find("global batch size of 1 or more, but got " + std::to_string(size)),
              std::string::npos);
  }
  EXPECT_THROW(two->distribute_dataset(numbered_dataset(4), {.global_batch_size = 2, .prefetch = -1}),
               InvalidArgument);
  EXPECT_THROW(two->distribute_dataset(numbered_dataset(4), {.global_batch_size = 2, .num_workers = 0}),
               InvalidArgument);
}

TEST(DistributedDataset, BackgroundWorkersGiveTheSameBatchesAsNone) {
  OnReplicas three(3);
  std::vector<Epoch> expected;
  for (const auto& [prefetch, workers] :
       std::vector<std::pair<int, int>>{{0, 1}, {1, 1}, {2, 1}, {3, 3}, {8, 4}}) {
    auto batches = three->distribute_dataset(
        numbered_dataset(50),
        {.global_batch_size = 7, .shuffle_seed = 2, .prefetch = prefetch, .num_workers = workers});
    std::vector<Epoch> epochs{epoch_of(batches), epoch_of(batches, 3), epoch_of(batches)};
    if (expected.empty()) expected = epochs;
    EXPECT_EQ(epochs, expected) << prefetch << " ahead, " << workers << " workers";
  }
}

TEST(DistributedDataset, AnErrorInAWorkerReachesTheLoopAtItsBatch) {
  OnReplicas two(2);
  for (const auto& [prefetch, workers] : std::vector<std::pair<int, int>>{{0, 1}, {2, 1}, {4, 3}}) {
    auto damaged = std::make_shared<std::atomic<bool>>(true);
    auto batches = two->distribute_dataset(
        DamagedDataset(damaged), {.global_batch_size = 4, .prefetch = prefetch, .num_workers = workers});
    Epoch seen;
    const auto message = message_of<std::domain_error>([&] {
      for (const auto& batch : batches) seen.push_back(shards_of(batch));
    });
    EXPECT_EQ(message, "example 5 is damaged");
    EXPECT_EQ(seen, (Epoch{{{0, 1}, {2, 3}}}));
    *damaged = false;
    EXPECT_EQ(epoch_of(batches).size(), 3U) << "the next loop starts anew";
  }
}

TEST(DistributedDataset, ARestoredPositionSurvivesAnErrorInItsFirstBatch) {
  OnReplicas two(2);
  auto damaged = std::make_shared<std::atomic<bool>>(true);
  auto batches = two->distribute_dataset(DamagedDataset(damaged), {.global_batch_size = 4});
  batches.restore({.epoch = 2, .step = 1});
  EXPECT_THROW(batches.begin(), std::domain_error);
  *damaged = false;
  EXPECT_EQ(epoch_of(batches), (Epoch{{{4, 5}, {6, 7}}, {{8, 9}, {10, 11}}}));
}

TEST(DistributedDataset, RepeatJoinsEpochsThatAreShuffledAnew) {
  OnReplicas two(2);
  auto single = two->distribute_dataset(numbered_dataset(5), {.global_batch_size = 2, .shuffle_seed = 1});
  auto twice = single.repeat(2);
  EXPECT_EQ(twice.size(), 6);
  Numbers expected = flat(epoch_of(single));
  for (const int64_t number : flat(epoch_of(single))) expected.push_back(number);
  EXPECT_EQ(flat(epoch_of(twice)), expected);
  EXPECT_EQ(epoch_of(twice, 1), epoch_of(single, 1)) << "its second loop begins with the third epoch";

  auto endless = single.repeat();
  EXPECT_THROW(endless.size(), InvalidArgument);
  EXPECT_THROW(endless.repeat(2), InvalidArgument);
  EXPECT_EQ(epoch_of(endless, 50).size(), 50U);
  EXPECT_EQ(endless.take(4).size(), 4);
  EXPECT_THROW(single.repeat(-1), InvalidArgument);
}

TEST(DistributedDataset, TakeEndsEveryEpochEarly) {
  OnReplicas two(2);
  auto batches = two->distribute_dataset(numbered_dataset(9), {.global_batch_size = 2});
  auto taken = batches.take(2);
  EXPECT_EQ(taken.size(), 2);
  EXPECT_EQ(epoch_of(taken), (Epoch{{{0}, {1}}, {{2}, {3}}}));
  EXPECT_EQ(epoch_of(taken).size(), 2U);
  auto none = batches.take(0);
  EXPECT_EQ(none.size(), 0);
  EXPECT_TRUE(epoch_of(none).empty());
  EXPECT_THROW(batches.take(-1), InvalidArgument);
}

TEST(DistributedDataset, MapChangesEveryShardAndKeepsTheBatchSizes) {
  OnReplicas three(3);
  auto batches = three->distribute_dataset(numbered_dataset(7), {.global_batch_size = 4, .num_workers = 2})
                     .map([](Example batch) { return std::make_pair(batch.data * 10, batch.target); });
  EXPECT_EQ(batches.size(), 2);
  std::vector<double> sums;
  for (const auto& batch : batches) {
    EXPECT_TRUE(batch.batch_sizes().has_value());
    for (const auto& [data, target] : batch.local_values()) {
      EXPECT_TRUE(torch::equal(data.squeeze(1), target.to(torch::kDouble) * 10));
      sums.push_back(data.sum().item<double>());
    }
  }
  EXPECT_EQ(sums, (std::vector<double>{10, 50, 0, 40, 50, 60}));
}

TEST(DistributedDataset, LeavingTheLoopEarlyEndsTheEpoch) {
  OnReplicas two(2);
  const DistributeOptions options{.global_batch_size = 4, .shuffle_seed = 3, .num_workers = 2};
  auto whole = two->distribute_dataset(numbered_dataset(20), options);
  const auto first = epoch_of(whole), second = epoch_of(whole), third = epoch_of(whole);
  auto left = two->distribute_dataset(numbered_dataset(20), options);
  EXPECT_EQ(epoch_of(left, 1), (Epoch{first[0]}));
  EXPECT_EQ(epoch_of(left, 5), second) << "left in its last batch";
  EXPECT_EQ(epoch_of(left), third);
}

TEST(DistributedDataset, ThePositionIsTheBatchAfterTheOneInTheLoopsBody) {
  OnReplicas two(2);
  auto batches = two->distribute_dataset(numbered_dataset(8), {.global_batch_size = 4});
  EXPECT_EQ(batches.position(), (DatasetPosition{0, 0}));
  std::vector<DatasetPosition> positions;
  for ([[maybe_unused]] const auto& batch : batches) positions.push_back(batches.position());
  EXPECT_EQ(positions, (std::vector<DatasetPosition>{{0, 1}, {0, 2}}));
  EXPECT_EQ(batches.position(), (DatasetPosition{1, 0}));
}

TEST(DistributedDataset, ARestoredPositionGoesOnBitEqual) {
  OnReplicas two(2);
  const auto make = [&](const std::string& kind) {
    auto batches = two->distribute_dataset(
        numbered_dataset(11), {.global_batch_size = 3, .shuffle_seed = 8, .prefetch = 3, .num_workers = 2});
    if (kind == "repeated") return batches.repeat(2);
    if (kind == "taken") return batches.take(3);
    if (kind == "mapped") return batches.map([](Example batch) { return batch; });
    return batches;
  };
  for (const std::string kind : {"plain", "repeated", "taken", "mapped"}) {
    auto uninterrupted = make(kind);
    const auto first = epoch_of(uninterrupted), second = epoch_of(uninterrupted),
               third = epoch_of(uninterrupted);
    for (size_t stop = 1; stop <= second.size(); ++stop) {
      auto interrupted = make(kind);
      epoch_of(interrupted);
      DatasetPosition saved;
      for ([[maybe_unused]] const auto& batch : interrupted) {
        saved = interrupted.position();
        if (saved.step == static_cast<int64_t>(stop)) break;
      }
      auto resumed = make(kind);
      resumed.restore(saved);
      const Epoch rest(second.begin() + static_cast<int64_t>(stop), second.end());
      EXPECT_EQ(epoch_of(resumed), rest) << kind << " stopped after " << stop;
      EXPECT_EQ(epoch_of(resumed), third) << kind << " stopped after " << stop;
    }
  }
}

TEST(DistributedDataset, RestoreRefusesNegativePositionsAndPassesOverTheEnd) {
  OnReplicas two(2);
  auto batches = two->distribute_dataset(numbered_dataset(8), {.global_batch_size = 4});
  EXPECT_THROW(batches.restore({.epoch = -1}), InvalidArgument);
  EXPECT_THROW(batches.restore({.epoch = 0, .step = -1}), InvalidArgument);
  batches.restore({.epoch = 3, .step = 9});
  EXPECT_TRUE(epoch_of(batches).empty());
  EXPECT_EQ(batches.position(), (DatasetPosition{4, 0}));
}

TEST(DistributedDataset, OnlyTheNewestIteratorMovesThePosition) {
  OnReplicas two(2);
  auto batches = two->distribute_dataset(numbered_dataset(12), {.global_batch_size = 4});
  auto older = batches.begin();
  auto newer = batches.begin();
  EXPECT_EQ(batches.position(), (DatasetPosition{1, 1}));
  ++older;
  EXPECT_EQ(shards_of(*older), (std::vector<Numbers>{{4, 5}, {6, 7}}));
  EXPECT_EQ(batches.position(), (DatasetPosition{1, 1}));
  ++newer;
  EXPECT_EQ(batches.position(), (DatasetPosition{1, 2}));
}

TEST(DistributedDataset, GoesIntoRunWithEachReplicasShardAndSizes) {
  OnReplicas three(3);
  auto batches = three->distribute_dataset(numbered_dataset(7), {.global_batch_size = 4});
  std::vector<double> totals;
  for (const auto& batch : batches) {
    const auto sums = three->run(
        [](ReplicaContext& replica, const Example& shard) {
          EXPECT_EQ(shard.target.numel(), replica.local_batch_size());
          return shard.target.sum() + 100 * *replica.global_batch_size();
        },
        batch);
    totals.push_back(three->reduce(ReduceOp::kSum, sums).item<double>());
  }
  EXPECT_EQ(totals, (std::vector<double>{0 + 1 + 2 + 3 + 3 * 400, 4 + 5 + 6 + 3 * 300}));
}

}  // namespace
}  // namespace lockstep
