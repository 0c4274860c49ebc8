#include "lockstep/strategies/input/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <stdexcept>

#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

struct PrefetchCase {
  int depth = 0;
  int workers = 1;
};

class PrefetcherModes : public testing::TestWithParam<PrefetchCase> {
 protected:
  static Prefetcher<int64_t> prefetch(Prefetcher<int64_t>::Make make, int64_t first) {
    return {std::move(make), first, GetParam().depth, GetParam().workers};
  }
};

TEST_P(PrefetcherModes, HandsOutItemsInOrderFromTheFirstToTheEnd) {
  auto items = prefetch([](int64_t n) { return n < 50 ? std::optional(n * n) : std::nullopt; }, 3);
  for (int64_t n = 3; n < 50; ++n) ASSERT_EQ(items.next(), n * n);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(items.next(), std::nullopt) << "the end is final";
}

TEST_P(PrefetcherModes, ThrowsAtTheFailedItemsPlaceAndStaysThere) {
  const auto make = [](int64_t n) -> std::optional<int64_t> {
    if (n == 4) throw std::domain_error("item 4 is damaged");
    return n;
  };
  auto items = prefetch(make, 0);
  for (int64_t n = 0; n < 4; ++n) ASSERT_EQ(items.next(), n);
  // Other workers may have made the items after the failed one: they must not be returned now.
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(message_of<std::domain_error>([&] { items.next(); }), "item 4 is damaged");
}

TEST_P(PrefetcherModes, MakesEachItemOnceAndNoMoreAheadThanItsDepth) {
  std::atomic<int64_t> handed_out{0};
  std::atomic<bool> too_far{false};
  Mutex mutex;
  std::multiset<int64_t> made;
  {
    auto items = prefetch(
        [&](int64_t n) {
          // The item being taken counts as handed out only once next() has returned.
          if (n > handed_out + GetParam().depth) too_far = true;
          MutexLock lock(mutex);
          made.insert(n);
          return std::optional(n);
        },
        0);
    for (int64_t n = 0; n < 20; ++n) {
      ASSERT_EQ(items.next(), n);
      ++handed_out;
    }
  }
  EXPECT_FALSE(too_far);
  EXPECT_EQ(std::set<int64_t>(made.begin(), made.end()).size(), made.size());
}

TEST_P(PrefetcherModes, EndsWhileItsItemsLieReady) {
  std::atomic<int64_t> made{0};
  {
    auto items = prefetch([&](int64_t) { return std::optional(++made); }, 0);
  }
  {
    auto items = prefetch([&](int64_t) { return std::optional(++made); }, 0);
    items.next();
  }
  EXPECT_GE(made, 1);
}

INSTANTIATE_TEST_SUITE_P(Depths, PrefetcherModes,
                         testing::Values(PrefetchCase{0, 1}, PrefetchCase{0, 3}, PrefetchCase{1, 1},
                                         PrefetchCase{2, 1}, PrefetchCase{1, 4}, PrefetchCase{3, 2},
                                         PrefetchCase{8, 4}),
                         [](const auto& info) {
                           return "depth" + std::to_string(info.param.depth) + "_workers" +
                                  std::to_string(info.param.workers);
                         });

TEST(Prefetcher, WorkersMakeItemsAtTheSameTime) {
  std::latch both_are_inside(2);
  Prefetcher<int64_t> items(
      [&](int64_t n) {
        if (n < 2) both_are_inside.arrive_and_wait();  // one worker alone would wait here forever
        return std::optional(n);
      },
      0, 2, 2);
  EXPECT_EQ(items.next(), 0);
  EXPECT_EQ(items.next(), 1);
}

TEST(Prefetcher, MakesItemsWhileTheCallerIsBusy) {
  std::latch second_was_made(1);
  Prefetcher<int64_t> items(
      [&](int64_t n) {
        if (n == 1) second_was_made.count_down();
        return std::optional(n);
      },
      0, 1, 1);
  EXPECT_EQ(items.next(), 0);
  second_was_made.wait();  // nobody has asked for it yet
  EXPECT_EQ(items.next(), 1);
}

TEST(Prefetcher, EndsByWaitingForTheItemThatIsJustBeingMade) {
  std::latch is_making(1);
  std::atomic<bool> finished{false};
  {
    Prefetcher<int64_t> items(
        [&](int64_t n) {
          is_making.count_down();
          // The next line touches the caller's frame, which must still exist.
          finished = true;
          return std::optional(n);
        },
        0, 1, 1);
    is_making.wait();
  }
  EXPECT_TRUE(finished);
}

TEST(Prefetcher, WithoutDepthMakesItemsInTheCallersThread) {
  const auto caller = std::this_thread::get_id();
  std::thread::id maker;
  Prefetcher<int64_t> items(
      [&](int64_t n) {
        maker = std::this_thread::get_id();
        return std::optional(n);
      },
      0, 0, 4);
  items.next();
  EXPECT_EQ(maker, caller);
}

}  // namespace
}  // namespace lockstep
