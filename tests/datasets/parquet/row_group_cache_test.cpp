#include "lockstep/datasets/parquet/internal/row_group_cache.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>

namespace lockstep {
namespace {

using Groups = std::vector<RowGroupCache::Group>;

using Columns = std::vector<ParquetValues>;

Columns values_of(size_t group, const RowGroupCache::Rows& = {}) {
  return {{.values = torch::full({4}, static_cast<int64_t>(group)), .offsets = {}}};
}

int64_t first_value(const RowGroupCache::RowGroup& group) {
  return group.columns[0].values[0].item<int64_t>();
}

TEST(RowGroupCache, DecodesARowGroupOnceWhileItFits) {
  RowGroupCache cache(Groups(4, {.bytes = 10, .rows = 8}), 40, values_of);
  for (int round = 0; round < 2; ++round)
    for (size_t group = 0; group < 4; ++group)
      EXPECT_EQ(first_value(*cache.get(group, 1)), static_cast<int64_t>(group));
  EXPECT_EQ(cache.num_decoded(), 4);
  EXPECT_EQ(cache.peak_bytes(), 40);
}

TEST(RowGroupCache, GivesUpWhatWasUsedWhollyAndThenWhatIsOldest) {
  std::vector<size_t> decoded;
  RowGroupCache cache(Groups(5, {.bytes = 10, .rows = 2}), 30, [&](size_t group, const auto&) {
    decoded.push_back(group);
    return values_of(group);
  });
  cache.get(0, 1);
  cache.get(1, 2);  // all of its rows
  cache.get(2, 1);
  cache.get(3, 1);  // takes the place of 1
  cache.get(0, 0);
  cache.get(2, 0);
  cache.get(4, 1);  // takes the place of 3, which was not used for longest
  cache.get(0, 0);
  cache.get(2, 0);
  EXPECT_EQ(decoded, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(RowGroupCache, GivesUpAPartlyUsedRowGroupOnceItsLastRowWasUsed) {
  std::vector<size_t> decoded;
  RowGroupCache cache(Groups(4, {.bytes = 10, .rows = 4}), 20, [&](size_t group, const auto&) {
    decoded.push_back(group);
    return values_of(group);
  });
  cache.get(0, 1);
  cache.get(1, 1);
  cache.note_end(1);
  cache.note_end(3);  // which is not there
  cache.get(2, 1);    // takes the place of 1, though 0 was unused for longer
  cache.note_end(2);
  cache.get(2, 1);  // is needed all the same
  cache.get(3, 1);  // takes the place of 0
  cache.get(2, 1);
  EXPECT_EQ(decoded, (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(RowGroupCache, NeverHoldsMoreThanItsLimit) {
  constexpr int kThreads = 4;
  constexpr int64_t kLimit = 100;
  std::mt19937_64 random(1);
  Groups groups;
  for (int i = 0; i < 30; ++i)
    groups.push_back({.bytes = 1 + static_cast<int64_t>(random() % kLimit), .rows = 3});
  std::atomic<int64_t> bytes{0};
  std::atomic<bool> is_above{false};
  // The values note how long they live, whoever holds them.
  RowGroupCache cache(groups, kLimit, [&](size_t group, const auto&) {
    const int64_t size = groups[group].bytes;
    if ((bytes += size) > kLimit) is_above = true;
    auto* number = new int64_t(static_cast<int64_t>(group));
    return Columns{{.values = torch::from_blob(
                        number, {1},
                        [&bytes, size](void* data) {
                          bytes -= size;
                          delete static_cast<int64_t*>(data);
                        },
                        torch::kLong),
                    .offsets = {}}};
  });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937_64 own(static_cast<uint64_t>(i));
        for (int step = 0; step < 300; ++step) {
          const auto group = static_cast<size_t>(own() % groups.size());
          if (step % 3 == 0) cache.prefetch({static_cast<size_t>(own() % groups.size())});
          EXPECT_EQ(first_value(*cache.get(group, 1)), static_cast<int64_t>(group));
        }
      });
    }
  }
  EXPECT_FALSE(is_above);
  EXPECT_LE(cache.peak_bytes(), kLimit);
}

TEST(RowGroupCache, DecodesAheadIntoTheRoomOfWhatIsDone) {
  std::atomic<int> num_ahead{0};
  const auto here = std::this_thread::get_id();
  RowGroupCache cache(Groups(4, {.bytes = 10, .rows = 2}), 20, [&](size_t group, const auto&) {
    if (std::this_thread::get_id() != here) ++num_ahead;
    return values_of(group);
  });
  cache.get(0, 1);
  cache.get(1, 1);
  cache.prefetch({2});  // there is no room yet
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(num_ahead, 0);
  cache.get(1, 1);  // now there is
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cache.num_decoded() < 3 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(first_value(*cache.get(2, 1)), 2);
  EXPECT_EQ(num_ahead, 1);
  EXPECT_EQ(cache.num_decoded(), 3);
}

TEST(RowGroupCache, DecodesAheadThoughOnlyAPartOfEachRowGroupIsUsed) {
  const auto here = std::this_thread::get_id();
  std::atomic<int> num_ahead{0};
  RowGroupCache cache(Groups(100, {.bytes = 10, .rows = 64}), 30, [&](size_t group, const auto&) {
    if (std::this_thread::get_id() != here) ++num_ahead;
    return values_of(group);
  });
  for (size_t group = 0; group < 100; ++group) {
    for (int step = 0; step < 32; ++step) {
      cache.get(group, 1);
      if (step == 16 && group + 1 < 100) cache.prefetch({group + 1});
      // As a training's steps give the other thread time.
      if (step >= 20) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  EXPECT_EQ(cache.num_decoded(), 100);
  EXPECT_GT(num_ahead, 50);
}

TEST(RowGroupCache, LetsNobodyTakeThePlaceOfWhatWasDecodedAhead) {
  // Three lanes of 20 row groups, which all come to their next one at the same step. There is room for five.
  constexpr size_t kLanes = 3, kPerLane = 20, kSteps = 32;
  RowGroupCache cache(Groups(kLanes * kPerLane, {.bytes = 10, .rows = kSteps}), 50, values_of, /*threads=*/2);
  for (size_t i = 0; i < kPerLane; ++i) {
    for (size_t step = 0; step < kSteps; ++step) {
      std::vector<size_t> ahead;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        cache.get(lane * kPerLane + i, 1);
        if (i + 1 < kPerLane) ahead.push_back(lane * kPerLane + i + 1);
      }
      cache.prefetch(ahead);
      // As a training's steps give the other threads time.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  EXPECT_EQ(cache.num_decoded(), static_cast<int64_t>(kLanes * kPerLane));
}

TEST(RowGroupCache, DecodesAheadInTheOrderInWhichRowsAreUsed) {
  RowGroupCache cache(Groups(2, {.bytes = 10, .rows = 4}), 20, [](size_t, const RowGroupCache::Rows& order) {
    const std::vector<int64_t> rows(order.begin(), order.end());
    return Columns{{.values = order.empty() ? torch::arange(4) : torch::tensor(rows), .offsets = {}}};
  });
  EXPECT_TRUE(cache.get(0, 1)->places.empty());
  cache.prefetch({1}, [](size_t group) {
    EXPECT_EQ(group, 1U);
    return std::make_shared<const RowGroupCache::Rows>(RowGroupCache::Rows{2, 0, 3, 1});
  });
  // By the other thread or by this one.
  const auto decoded = cache.get(1, 4);
  EXPECT_EQ(decoded->places, (RowGroupCache::Rows{1, 3, 0, 2}));
  for (int64_t row = 0; row < 4; ++row)
    EXPECT_EQ(decoded->columns[0].values[decoded->places[static_cast<size_t>(row)]].item<int64_t>(), row);
}

TEST(RowGroupCache, DoesNotUseAnOrderOfAPartOfTheRows) {
  RowGroupCache cache(Groups(1, {.bytes = 10, .rows = 4}), 10, [](size_t group, const auto& order) {
    EXPECT_TRUE(order.empty());
    return values_of(group);
  });
  cache.prefetch({0}, [](size_t) {
    return std::make_shared<const RowGroupCache::Rows>(RowGroupCache::Rows{2, 0, 1});
  });
  EXPECT_TRUE(cache.get(0, 3)->places.empty());
  EXPECT_EQ(cache.num_decoded(), 1);
}

TEST(RowGroupCache, LeavesErrorsOfDecodingAheadToGet) {
  std::atomic<int> attempts{0};
  RowGroupCache cache(Groups(2, {.bytes = 10, .rows = 2}), 20, [&](size_t group, const auto&) {
    ++attempts;
    if (group == 1) throw std::domain_error("row group 1 is damaged");
    return values_of(group);
  });
  cache.prefetch({1});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (attempts == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THROW(cache.get(1, 1), std::domain_error);
  EXPECT_THROW(cache.get(1, 1), std::domain_error);
  EXPECT_EQ(first_value(*cache.get(0, 1)), 0);
}

}  // namespace
}  // namespace lockstep
