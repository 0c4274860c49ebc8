#include "lockstep/strategies/input/distributed_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/strategies/input/chunked_order.h"
#include "lockstep/strategies/input/epoch_order.h"
#include "lockstep/strategies/input/permutation.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/number_stream.h"
#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {
namespace {

/// The examples of numbered_dataset() in chunks, two of which may be open. Notes which it is told of.
struct ChunkedNumbers {
  std::vector<size_t> sizes;
  std::shared_ptr<std::vector<size_t>> asked = std::make_shared<std::vector<size_t>>();
  using Orders = std::map<size_t, std::vector<uint32_t>>;
  std::shared_ptr<Orders> orders = std::make_shared<Orders>();  // within the chunks, that it is told of

  std::optional<size_t> size() const { return std::accumulate(sizes.begin(), sizes.end(), size_t{0}); }
  Example get_batch(c10::ArrayRef<size_t> indices) const {
    return numbered_dataset(static_cast<int64_t>(*size())).get_batch(indices);
  }
  std::vector<size_t> chunk_sizes() const { return sizes; }
  size_t max_open_chunks() const { return 2; }
  using OrderWithin = std::function<std::shared_ptr<const std::vector<uint32_t>>(size_t chunk)>;
  void prefetch_chunks(const std::vector<size_t>& chunks, const OrderWithin& order_within) const {
    asked->insert(asked->end(), chunks.begin(), chunks.end());
    for (const size_t chunk : chunks)
      if (const auto order = order_within(chunk)) (*orders)[chunk] = *order;
  }
};

/// Seven examples, but chunks of eight.
struct WronglyChunked : ChunkedNumbers {
  std::optional<size_t> size() const { return 7; }
};

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

TEST(DistributedDataset, ADatasetThatReturnsScalarsIsRefused) {
  struct Scalars {
    std::optional<size_t> size() const { return 4; }
    torch::Tensor get_batch(c10::ArrayRef<size_t>) const { return torch::ones({}); }
  };
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = strategy.distribute_dataset(Scalars(), {.global_batch_size = 4});
  EXPECT_EQ(message_of<InvalidArgument>([&] { batches.begin(); }),
            "[distribute_dataset] the dataset's get_batch() of 2 indices: expected tensors with examples "
            "along axis 0, "
            "but got a tensor without dimensions: return a batch of shape [n, ...], such as "
            "value.unsqueeze(0) for one "
            "example");
}

TEST(DistributedDataset, ChunksThatDoNotAddUpToTheSizeAreRefused) {
  OnReplicas two(2);
  const WronglyChunked dataset{{.sizes = {4, 4}}};
  EXPECT_EQ(message_of<InvalidArgument>([&] { two->distribute_dataset(dataset, {.global_batch_size = 4}); }),
            "[distribute_dataset] expected the dataset's chunk_sizes() to add up to its size, 7, but got 8");
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

TEST(DistributedDataset, ShufflesWithinAWindowInTheSameOrderForEveryNumberOfReplicas) {
  for (int replicas = 1; replicas <= 4; ++replicas) {
    OnReplicas strategy(replicas);
    const DistributeOptions options{.global_batch_size = 5, .shuffle_seed = 11, .shuffle_window = 6};
    auto batches = strategy->distribute_dataset(numbered_dataset(23), options);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const EpochOrder order(23, {.seed = 11, .epoch = epoch, .window = 6});
      const auto expected = order.indices({.begin = 0, .end = 23});
      EXPECT_EQ(flat(epoch_of(batches)), Numbers(expected.begin(), expected.end()))
          << replicas << " epoch " << epoch;
    }
  }
}

TEST(DistributedDataset, ShufflesChunksInTheSameOrderForEveryNumberOfReplicas) {
  const std::vector<size_t> chunks{7, 0, 9, 4, 3};
  for (const int64_t window : {0, 5}) {
    for (int replicas = 1; replicas <= 4; ++replicas) {
      OnReplicas strategy(replicas);
      auto batches = strategy->distribute_dataset(
          ChunkedNumbers{chunks}, {.global_batch_size = 5, .shuffle_seed = 11, .shuffle_window = window});
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        const ChunkedOrder order(
            chunks,
            {.seed = 11, .epoch = epoch, .window = static_cast<size_t>(window), .lanes = 2, .batch_size = 5});
        const auto expected = order.indices({.begin = 0, .end = 23});
        EXPECT_EQ(flat(epoch_of(batches)), Numbers(expected.begin(), expected.end()))
            << replicas << " epoch " << epoch;
      }
      auto in_order = strategy->distribute_dataset(ChunkedNumbers{chunks}, {.global_batch_size = 5});
      EXPECT_EQ(flat(epoch_of(in_order)), numbers_from(0, 23));
    }
  }
}

TEST(DistributedDataset, TellsADatasetInChunksWhichItNeedsNext) {
  /// Notes chunks that it was not told of before their first example.
  struct Told : ChunkedNumbers {
    std::shared_ptr<std::set<size_t>> untold = std::make_shared<std::set<size_t>>();
    Example get_batch(c10::ArrayRef<size_t> indices) const {
      for (const size_t index : indices)
        if (std::find(asked->begin(), asked->end(), index / 6) == asked->end()) untold->insert(index / 6);
      return ChunkedNumbers::get_batch(indices);
    }
  };
  OnReplicas two(2);
  const auto asked = std::make_shared<std::vector<size_t>>();
  const auto orders = std::make_shared<ChunkedNumbers::Orders>();
  const Told dataset{{{6, 6, 6, 6}, asked, orders}};
  auto batches = two->distribute_dataset(
      dataset, {.global_batch_size = 4, .shuffle_seed = 11, .prefetch = 1, .num_workers = 1});
  const auto order = flat(epoch_of(batches));
  // Each lane has two chunks. When it begins with the first, it is told of the second, too.
  EXPECT_EQ(*dataset.untold, std::set<size_t>());
  const std::set<size_t> expected{0, 1, 2, 3};
  EXPECT_EQ(std::set<size_t>(asked->begin(), asked->begin() + 4), expected);
  EXPECT_EQ(std::set<size_t>(asked->begin(), asked->end()), expected);
  EXPECT_EQ(batches.describe(), "batches of 4 out of 24 examples, shuffled with seed 11 in 2 lanes");
  for (const size_t chunk : expected) {
    std::vector<uint32_t> of_chunk;
    for (const int64_t number : order)
      if (static_cast<size_t>(number) / 6 == chunk) of_chunk.push_back(static_cast<uint32_t>(number) % 6);
    EXPECT_EQ((*orders)[chunk], of_chunk);
  }
}

TEST(DistributedDataset, AsksADatasetForExamplesOfAnEpoch) {
  struct WithEpochs {
    std::optional<size_t> size() const { return 5; }
    torch::Tensor get_batch(c10::ArrayRef<size_t> indices) const { return get_batch(indices, 0); }
    torch::Tensor get_batch(c10::ArrayRef<size_t> indices, int64_t epoch) const {
      return torch::full({static_cast<int64_t>(indices.size())}, epoch);
    }
  };
  OnReplicas two(2);
  auto batches = two->distribute_dataset(WithEpochs(), {.global_batch_size = 3, .shuffle_seed = 1}).repeat(2);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    int64_t step = 0;
    for (const auto& batch : batches) {
      for (const auto& shard : batch.local_values())
        EXPECT_TRUE(shard.eq(2 * epoch + step / 2).all().item<bool>()) << epoch << ", " << step;
      ++step;
    }
    EXPECT_EQ(step, 4);
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
  EXPECT_NE(message_of<InvalidArgument>([&] {
              two->distribute_dataset(numbered_dataset(4), {});
            }).find("global batch size of 1 or more, but got none"),
            std::string::npos);
  EXPECT_THROW(two->distribute_dataset(numbered_dataset(4), {.global_batch_size = 2, .prefetch = -1}),
               InvalidArgument);
  EXPECT_THROW(two->distribute_dataset(numbered_dataset(4), {.global_batch_size = 2, .shuffle_window = -1}),
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

/// Fails the test if two threads are inside at once.
class OneAtATime {
 public:
  std::optional<size_t> size() const { return 16; }
  Example get_batch(c10::ArrayRef<size_t> indices) const {
    EXPECT_FALSE(inside_->exchange(true)) << "two threads at once";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    *inside_ = false;
    return numbered_dataset(16).get_batch(indices);
  }

 private:
  std::shared_ptr<std::atomic<bool>> inside_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(DistributedDataset, WithOneWorkerLoopsUnderWayAtOnceReadTheDatasetInTurns) {
  OnReplicas two(2);
  auto batches = two->distribute_dataset(OneAtATime(), {.global_batch_size = 2});
  auto taken = batches.take(8);
  Numbers seen;
  auto a = batches.begin();
  auto b = taken.begin();
  for (; b != taken.end(); ++a, ++b) {
    seen.push_back(shards_of(*a)[0][0]);
    EXPECT_EQ(shards_of(*b)[0][0], seen.back());
  }
  EXPECT_EQ(seen, (Numbers{0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST(DistributedDataset, AGlobalBatchOfAnySizeBeyondTheDatasetIsAllOfIt) {
  OnReplicas two(2);
  for (const int64_t size : {int64_t{9}, std::numeric_limits<int64_t>::max()}) {
    auto batches = two->distribute_dataset(numbered_dataset(5), {.global_batch_size = size});
    EXPECT_EQ(batches.size(), 1);
    EXPECT_EQ(epoch_of(batches), (Epoch{{{0, 1, 2}, {3, 4}}}));
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
    EXPECT_EQ(epoch_of(batches).size(), 3U) << "the next loop starts from the beginning";
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
