#include "lockstep/datasets/files/internal/parallel_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

/// Calls `work()` in `num_threads` blocks, each of which waits until all of them have begun. Returns whether
/// they have.
bool run_at_once(ParallelBlocks& blocks, size_t num_threads, const std::function<void()>& work) {
  std::atomic<size_t> begun{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  blocks.for_each(num_threads, 1, [&](size_t, size_t) {
    ++begun;
    while (begun < num_threads && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    work();
  });
  return std::chrono::steady_clock::now() < deadline;
}

TEST(ParallelBlocks, VisitsEveryIndexOnceInBlocksOfTheSize) {
  for (const int64_t num_threads : {0, 1, 3}) {
    ParallelBlocks blocks(num_threads);
    for (const size_t block_size : {size_t{1}, size_t{64}}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{64}, size_t{1000}}) {
        std::vector<std::atomic<int>> visits(count);
        blocks.for_each(count, block_size, [&](size_t begin, size_t end) {
          EXPECT_EQ(begin % block_size, 0U);
          EXPECT_TRUE(end == begin + block_size || end == count);
          for (size_t i = begin; i < end; ++i) ++visits[i];
        });
        for (size_t i = 0; i < count; ++i) EXPECT_EQ(visits[i], 1) << i << " of " << count;
      }
    }
  }
}

TEST(ParallelBlocks, RunsAsManyBlocksAtOnceAsThereAreThreads) {
  ParallelBlocks blocks(4);
  EXPECT_TRUE(run_at_once(blocks, 4, [] {}));
}

TEST(ParallelBlocks, KeepsItsThreadsForLaterCalls) {
  static std::atomic<int> others{0};
  others = 0;
  ParallelBlocks blocks(3);
  for (int call = 0; call < 20; ++call) {
    ASSERT_TRUE(run_at_once(blocks, 3, [caller = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == caller) return;
      thread_local const int counted = ++others;  // threads' ids are used again
      static_cast<void>(counted);
    }));
  }
  EXPECT_EQ(others, 2);
}

TEST(ParallelBlocks, WithOneThreadWorksInTheCallersOnly) {
  const auto caller = std::this_thread::get_id();
  ParallelBlocks(1).for_each(100, 1, [&](size_t, size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelBlocks, ServesSeveralCallersAtOnce) {
  constexpr int kCallers = 4;
  ParallelBlocks blocks(3);
  std::latch all_call(kCallers);
  std::vector<std::jthread> callers;
  for (size_t caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      all_call.arrive_and_wait();
      for (int call = 0; call < 100; ++call) {
        std::vector<std::atomic<int>> visits(10 + caller);
        const auto visit = [&](size_t begin, size_t) {
          ++visits[begin];
          // One caller's errors are no one else's.
          if (caller == 0 && begin >= 5) throw std::runtime_error(std::to_string(begin));
        };
        try {
          blocks.for_each(visits.size(), 1, visit);
          EXPECT_NE(caller, 0U);
        } catch (const std::runtime_error& error) {
          EXPECT_EQ(caller, 0U);
          EXPECT_STREQ(error.what(), "5");
        }
        for (size_t i = 0; i < (caller == 0 ? 6 : visits.size()); ++i) EXPECT_EQ(visits[i], 1);
      }
    });
  }
}

TEST(ParallelBlocks, ReportsTheFirstFailingBlockEvenWhereItFailsLast) {
  const auto work = [](size_t begin, size_t) {
    if (begin == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw std::runtime_error(std::to_string(begin));
  };
  ParallelBlocks blocks(4);
  for (const size_t block_size : {size_t{1}, size_t{64}}) {
    try {
      blocks.for_each(1000, block_size, work);
      FAIL() << "expected an exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "0");
    }
  }
}

TEST(ParallelBlocks, BeginsNoBlockAfterAFailure) {
  std::atomic<int> begun{0};
  EXPECT_THROW(ParallelBlocks(1).for_each(100000, 64,
                                          [&](size_t, size_t) {
                                            ++begun;
                                            throw std::runtime_error("first");
                                          }),
               std::runtime_error);
  EXPECT_EQ(begun, 1);
}

}  // namespace
}  // namespace lockstep
