// The number of batches in an epoch of a distributed dataset, and the position in the epoch.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {
namespace {

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
    auto batches =
        two->distribute_dataset(numbered_dataset(11), {.global_batch_size = 3,
                                                       .shuffle_seed = 8,
                                                       .shuffle_window = kind == "windowed" ? 4 : 0,
                                                       .prefetch = 3,
                                                       .num_workers = 2});
    if (kind == "repeated") return batches.repeat(2);
    if (kind == "taken") return batches.take(3);
    if (kind == "mapped") return batches.map([](Example batch) { return batch; });
    return batches;
  };
  for (const std::string kind : {"plain", "windowed", "repeated", "taken", "mapped"}) {
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

}  // namespace
}  // namespace lockstep
