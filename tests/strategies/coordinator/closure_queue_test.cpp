#include "lockstep/strategies/coordinator/internal/closure_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ClosureOutcome = ClosureQueue::Outcome;

constexpr ClosureQueue::Worker kOne = 11;
constexpr ClosureQueue::Worker kOther = 22;

ClosureQueue::Clock::time_point now() {
  return ClosureQueue::Clock::now();
}

std::exception_ptr broken(const char* text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

TEST(ClosureQueue, GivesTheOldestFirst) {
  ClosureQueue queue;
  EXPECT_TRUE(queue.is_done());
  EXPECT_EQ(queue.take(kOne, now()), std::nullopt);
  EXPECT_EQ(queue.add(), 0U);
  EXPECT_EQ(queue.add(), 1U);
  EXPECT_EQ(queue.take(kOne, now()), 0U);
  EXPECT_EQ(queue.take(kOther, now()), 1U);
  EXPECT_EQ(queue.take(kOther, now()), std::nullopt);
  EXPECT_FALSE(queue.is_done());
  EXPECT_EQ(queue.first_open(), 0U);
  EXPECT_TRUE(queue.finish(kOther, 1));
  EXPECT_EQ(queue.first_open(), 0U);
  EXPECT_TRUE(queue.finish(kOne, 0));
  EXPECT_EQ(queue.first_open(), 2U);
  EXPECT_TRUE(queue.is_done());
  EXPECT_EQ(queue.wait_for(1), ClosureOutcome::kFinished);
  EXPECT_THROW(queue.wait_for(2), InvalidArgument);
}

TEST(ClosureQueue, AWorkerWaitsForWork) {
  ClosureQueue queue;
  auto taken = std::async(std::launch::async, [&] { return queue.take(kOne, now() + seconds(60)); });
  EXPECT_EQ(taken.wait_for(milliseconds(20)), std::future_status::timeout);
  queue.add();
  EXPECT_EQ(taken.get(), 0U);
  auto none = std::async(std::launch::async, [&] { return queue.take(kOne, now() + seconds(60)); });
  queue.close();
  EXPECT_EQ(none.get(), std::nullopt);
}

TEST(ClosureQueue, JoiningWaitsForTheLast) {
  ClosureQueue queue;
  queue.add();
  queue.take(kOne, now());
  auto joined = std::async(std::launch::async, [&] { queue.join(); });
  auto waited = std::async(std::launch::async, [&] { return queue.wait_for(0); });
  EXPECT_EQ(joined.wait_for(milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(waited.wait_for(milliseconds(0)), std::future_status::timeout);
  queue.finish(kOne, 0);
  joined.get();
  EXPECT_EQ(waited.get(), ClosureOutcome::kFinished);
}

TEST(ClosureQueue, WhatALostWorkerRanRunsElsewhereBeforeTheOthers) {
  ClosureQueue queue;
  for (int i = 0; i < 3; ++i) queue.add();
  EXPECT_EQ(queue.take(kOne, now()), 0U);
  EXPECT_EQ(queue.take(kOther, now()), 1U);
  queue.lose(kOne);
  EXPECT_EQ(queue.first_open(), 0U);
  EXPECT_EQ(queue.take(kOther, now()), 0U);
  // The first worker was only slow.
  EXPECT_FALSE(queue.finish(kOne, 0));
  EXPECT_FALSE(queue.fail(kOne, 0, broken("late")));
  EXPECT_TRUE(queue.finish(kOther, 0));
  EXPECT_TRUE(queue.finish(kOther, 1));
  EXPECT_EQ(queue.take(kOther, now()), 2U);
}

TEST(ClosureQueue, TheFirstErrorSurfacesOnceAndTheRestIsCancelled) {
  ClosureQueue queue;
  for (int i = 0; i < 4; ++i) queue.add();
  queue.take(kOne, now());
  queue.take(kOther, now());
  EXPECT_TRUE(queue.fail(kOne, 0, broken("first")));
  EXPECT_EQ(queue.take(kOne, now()), std::nullopt);
  EXPECT_EQ(queue.wait_for(0), ClosureOutcome::kFailed);
  EXPECT_EQ(queue.wait_for(2), ClosureOutcome::kCancelled);
  EXPECT_EQ(queue.wait_for(3), ClosureOutcome::kCancelled);
  auto joined = std::async(std::launch::async, [&] { queue.join(); });
  EXPECT_EQ(joined.wait_for(milliseconds(20)), std::future_status::timeout);  // one closure still runs
  EXPECT_TRUE(queue.fail(kOther, 1, broken("second")));
  EXPECT_THAT([&] { joined.get(); }, ::testing::ThrowsMessage<std::runtime_error>("first"));
  queue.join();
  // The next round.
  EXPECT_EQ(queue.add(), 4U);
  EXPECT_EQ(queue.take(kOne, now()), 4U);
  EXPECT_TRUE(queue.finish(kOne, 4));
  EXPECT_TRUE(queue.is_done());
}

TEST(ClosureQueue, AnErrorSurfacesAtTheNextCallWhicheverItIs) {
  for (const bool by_adding : {true, false}) {
    ClosureQueue queue;
    queue.add();
    queue.take(kOne, now());
    queue.fail(kOne, 0, broken("it"));
    if (by_adding) {
      EXPECT_THROW(queue.add(), std::runtime_error);
    } else {
      EXPECT_THROW(queue.is_done(), std::runtime_error);
    }
    EXPECT_TRUE(queue.is_done());
  }
}

TEST(ClosureQueue, WhatALostWorkerRanInAFailedRoundIsCancelled) {
  ClosureQueue queue;
  queue.add();
  queue.add();
  queue.take(kOne, now());
  queue.take(kOther, now());
  queue.fail(kOne, 0, broken("it"));
  queue.lose(kOther);
  EXPECT_EQ(queue.wait_for(1), ClosureOutcome::kCancelled);
  EXPECT_THROW(queue.join(), std::runtime_error);
}

// Workers of very different speeds, some of them lost: no closure sees more than `bound` others end while it
// runs.
TEST(ClosureQueue, BoundsWhatOthersEndWhileOneRuns) {
  std::mt19937 random(7);
  for (const uint64_t bound : {0, 1, 2, 3, 7}) {
    ClosureQueue queue(bound);
    constexpr int kClosures = 400;
    for (int i = 0; i < kClosures; ++i) queue.add();
    struct Running {
      ClosureQueue::Worker worker;
      uint64_t closure;
      uint64_t begin;
    };
    std::vector<Running> running;
    uint64_t num_ended = 0;
    uint64_t most_seen = 0;
    size_t most_at_once = 0;
    ClosureQueue::Worker next_worker = 0;
    while (!queue.is_done()) {
      while (const auto closure = queue.take(next_worker, now()))
        running.push_back({next_worker++, *closure, num_ended});
      most_at_once = std::max(most_at_once, running.size());
      ASSERT_FALSE(running.empty()) << "nobody may begin";
      // The oldest closure seldom ends.
      const size_t which = running.size() > 1 && random() % 10 > 0 ? 1 + random() % (running.size() - 1) : 0;
      const auto [worker, closure, begin] = running[which];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
      if (random() % 10 == 0) {
        queue.lose(worker);
      } else {
        EXPECT_TRUE(queue.finish(worker, closure));
      }
      most_seen = std::max(most_seen, num_ended - begin);
      ++num_ended;
    }
    EXPECT_EQ(most_seen, bound);  // never more, and the bound is reached
    EXPECT_EQ(most_at_once, bound + 1);
  }
}

TEST(ClosureQueue, ManyWorkersFinishEachClosureOnce) {
  ClosureQueue queue(5);
  constexpr uint64_t kClosures = 2'000;
  std::atomic<uint64_t> num_finished = 0;
  std::vector<std::thread> workers;
  for (ClosureQueue::Worker worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&, worker] {
      std::mt19937 random(static_cast<unsigned>(worker));
      while (const auto closure = queue.take(worker, now() + seconds(60))) {
        if (random() % 8 == 0) {
          queue.lose(worker);
        } else if (queue.finish(worker, *closure)) {
          ++num_finished;
        }
      }
    });
  }
  for (uint64_t i = 0; i < kClosures; ++i) queue.add();
  queue.join();
  queue.close();
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(num_finished, kClosures);
  EXPECT_EQ(queue.first_open(), kClosures);
}

}  // namespace
}  // namespace lockstep
