#include "lockstep/strategies/input/epoch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/strategies/input/permutation.h"

namespace lockstep {
namespace {

using Indices = std::vector<size_t>;

Indices all_of(size_t size, const EpochOrderOptions& options) {
  return EpochOrder(size, options).indices({.begin = 0, .end = size});
}

size_t distance(size_t a, size_t b) {
  return a < b ? b - a : a - b;
}

TEST(EpochOrder, WithoutAWindowIsThePermutationOfTheEpoch) {
  for (const size_t size : {0U, 1U, 2U, 23U, 1000U}) {
    EXPECT_EQ(all_of(size, {.seed = 11, .epoch = 2}), epoch_permutation(size, 11, 2));
    // A window over everything is none.
    EXPECT_EQ(all_of(size, {.seed = 11, .epoch = 2, .window = size}), epoch_permutation(size, 11, 2));
  }
}

// Computed by the same algorithm in Python, whose integers have no fixed width. A run that resumes with
// another build needs the same order.
TEST(EpochOrder, IsTheSameOnEveryMachine) {
  EXPECT_EQ(all_of(12, {.seed = 1, .window = 4}), (Indices{0, 1, 5, 6, 2, 3, 4, 7, 11, 9, 8, 10}));
  EXPECT_EQ(all_of(12, {.seed = 1, .epoch = 1, .window = 4}),
            (Indices{0, 1, 2, 5, 6, 3, 7, 4, 11, 9, 8, 10}));
  EXPECT_EQ(all_of(12, {.seed = UINT64_MAX, .epoch = 3, .window = 5, .max_held = 0}),
            (Indices{0, 3, 6, 2, 4, 5, 1, 9, 11, 10, 8, 7}));
  EXPECT_EQ(all_of(12, {.seed = 7, .epoch = 2, .max_held = 0}),
            (Indices{3, 2, 10, 8, 4, 9, 1, 5, 7, 0, 11, 6}));
}

// Threads that load batches at the same time share an order.
TEST(EpochOrder, GivesAllThreadsTheSameOrder) {
  constexpr size_t kSize = 3000;
  for (const size_t window : {0U, 50U}) {
    const EpochOrderOptions options{.seed = 2, .epoch = 1, .window = window};
    const auto whole = all_of(kSize, options);
    const EpochOrder order(kSize, options);
    std::vector<Indices> parts(300);
    std::atomic<size_t> next{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
          for (size_t part = next++; part < parts.size(); part = next++)
            parts[part] = order.indices({.begin = 10 * part, .end = 10 * part + 10});
        });
      }
    }
    Indices joined;
    for (const Indices& part : parts) joined.insert(joined.end(), part.begin(), part.end());
    EXPECT_EQ(joined, whole);
  }
}

TEST(EpochOrder, HoldsEveryIndexOnceAndMovesNoneFartherThanItsWindow) {
  for (const size_t size : {1U, 2U, 3U, 10U, 100U, 1001U}) {
    for (const size_t window : {1U, 2U, 7U, 64U, 1000U}) {
      for (const size_t max_held : {0U, 1U << 20}) {
        for (int64_t epoch = 0; epoch < 5; ++epoch) {
          auto order = all_of(size, {.seed = 3, .epoch = epoch, .window = window, .max_held = max_held});
          for (size_t i = 0; i < size; ++i) EXPECT_LE(distance(i, order[i]), window);
          std::sort(order.begin(), order.end());
          Indices expected(size);
          std::iota(expected.begin(), expected.end(), size_t{0});
          EXPECT_EQ(order, expected) << size << " " << window;
        }
      }
    }
  }
}

TEST(EpochOrder, IsTheSameHoweverItIsAskedFor) {
  constexpr size_t kSize = 1000;
  for (const size_t window : {0U, 10U, 300U}) {
    for (const size_t max_held : {100U, 1000U}) {
      const EpochOrderOptions options{.seed = 5, .epoch = 1, .window = window, .max_held = max_held};
      const auto whole = all_of(kSize, options);
      const EpochOrder order(kSize, options);
      for (size_t begin = kSize; begin-- > 0;) {
        const size_t end = std::min(kSize, begin + begin % 50);
        EXPECT_EQ(order.indices({.begin = begin, .end = end}),
                  Indices(whole.begin() + static_cast<ptrdiff_t>(begin),
                          whole.begin() + static_cast<ptrdiff_t>(end)));
      }
    }
  }
}

// Over many epochs, an example in the middle comes to every place of its window, and places near its own are
// more frequent: a block of 5 that begins anywhere holds d places in 5 - |d| of 5 cases, each with chance
// 1/5.
TEST(EpochOrder, MixesAllExamplesThatAreNearEachOther) {
  constexpr int kEpochs = 20'000;
  for (const size_t max_held : {0U, 1000U}) {
    std::map<int, int> moves;
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const auto order = all_of(41, {.seed = 9, .epoch = epoch, .window = 4, .max_held = max_held});
      ++moves[static_cast<int>(std::find(order.begin(), order.end(), 20U) - order.begin()) - 20];
    }
    for (int move = -4; move <= 4; ++move)
      EXPECT_NEAR(moves[move], kEpochs * (5 - std::abs(move)) / 25.0, 300) << move;
    EXPECT_EQ(moves.size(), 9U);
  }
}

TEST(EpochOrder, DiffersBetweenEpochsAndSeedsAndBlocks) {
  for (const size_t max_held : {0U, 1000U}) {
    std::set<Indices> orders;
    for (uint64_t seed = 0; seed < 10; ++seed)
      for (int64_t epoch = 0; epoch < 10; ++epoch)
        orders.insert(all_of(100, {.seed = seed, .epoch = epoch, .window = 19, .max_held = max_held}));
    EXPECT_EQ(orders.size(), 100U);
    // Blocks do not repeat each other's moves.
    const auto order = all_of(10'000, {.seed = 1, .window = 99, .max_held = max_held});
    std::set<Indices> moves;
    for (size_t begin = 0; begin < order.size(); begin += 100) {
      Indices of_block;
      for (size_t i = begin; i < begin + 100; ++i) of_block.push_back(order[i] + 100 - i);
      moves.insert(of_block);
    }
    EXPECT_EQ(moves.size(), 100U);
  }
}

// A permutation that is not held in memory is as even: Pearson's statistic over the places of one example and
// of pairs of neighbours. With 15 degrees of freedom, 99.9 % of uniform draws stay below 37.7.
TEST(EpochOrder, WithoutMemoryDrawsEveryPlaceEquallyOften) {
  constexpr int kDraws = 16'000;
  std::vector<int> places(16);
  std::vector<int> gaps(16);
  for (int64_t epoch = 0; epoch < kDraws; ++epoch) {
    const auto order = all_of(16, {.seed = 4, .epoch = epoch, .max_held = 0});
    ++places[order[5]];
    ++gaps[(order[6] + 16 - order[5]) % 16];
  }
  double statistic = 0;
  for (const int count : places) statistic += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(statistic, 37.7);
  EXPECT_EQ(gaps[0], 0);
  statistic = 0;
  for (size_t i = 1; i < gaps.size(); ++i)
    statistic += (gaps[i] - kDraws / 15.0) * (gaps[i] - kDraws / 15.0) / (kDraws / 15.0);
  EXPECT_LT(statistic, 36.1);  // 14 degrees of freedom
}

TEST(EpochOrder, OfBillionsOfExamplesTakesNoMemoryForThem) {
  constexpr size_t kSize = 3'000'000'000'000;
  for (const size_t window : {size_t{0}, size_t{1'000'000}, size_t{2'000'000'000'000}}) {
    const EpochOrder order(kSize, {.seed = 1, .window = window});
    std::set<size_t> seen;
    for (const size_t begin : {size_t{0}, kSize / 2, kSize - 1000}) {
      const auto indices = order.indices({.begin = begin, .end = begin + 1000});
      for (size_t i = 0; i < indices.size(); ++i) {
        EXPECT_LT(indices[i], kSize);
        EXPECT_LE(distance(indices[i], begin + i), window > 0 ? window : kSize);
        seen.insert(indices[i]);
      }
    }
    EXPECT_EQ(seen.size(), 3000U);
  }
}

}  // namespace
}  // namespace lockstep
