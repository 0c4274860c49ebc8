#include "lockstep/runtime/devices/internal/parallel_for.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/runtime/devices/intra_op_threads.h"

namespace lockstep {
namespace {

struct LoopPiece {
  int64_t begin, end;
  std::thread::id thread;
};

/// Returns the pieces of a loop in the order of their numbers.
std::vector<LoopPiece> pieces_of(int64_t begin, int64_t end, int64_t grain_size) {
  std::mutex mutex;
  std::vector<LoopPiece> pieces;
  parallel_for(begin, end, grain_size, [&](int64_t first, int64_t last) {
    const std::lock_guard lock(mutex);
    pieces.push_back({first, last, std::this_thread::get_id()});
  });
  std::ranges::sort(pieces, {}, &LoopPiece::begin);
  return pieces;
}

TEST(ParallelForTest, EachNumberIsVisitedOnceByAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 7}) {
    const IntraOpThreadsGuard guard(threads);
    for (const auto& [begin, end, grain] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {0, 1000, 1}, {-17, 990, 10}, {5, 6, 1}, {0, 3, 1}, {0, 100, 99}, {0, 100, 0}, {0, 8, 1}}) {
      std::vector<int> visits(static_cast<size_t>(end - begin));
      parallel_for(begin, end, grain, [&, from = begin](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) ++visits[static_cast<size_t>(i - from)];
      });
      EXPECT_EQ(std::ranges::count(visits, 1), end - begin) << threads << " threads, grain " << grain;
    }
  }
}

TEST(ParallelForTest, PiecesRunInThreadsOfTheirOwn) {
  const IntraOpThreadsGuard guard(3);
  const auto pieces = pieces_of(0, 3000, 1000);
  ASSERT_EQ(pieces.size(), 3);
  EXPECT_NE(pieces[0].thread, pieces[1].thread);
  EXPECT_NE(pieces[0].thread, pieces[2].thread);
  EXPECT_NE(pieces[1].thread, pieces[2].thread);
}

TEST(ParallelForTest, PiecesHoldTheGrainSizeAtLeast) {
  const IntraOpThreadsGuard guard(4);
  EXPECT_EQ(pieces_of(0, 2999, 1000).size(), 2);
  EXPECT_EQ(pieces_of(0, 1999, 1000).size(), 1);
  EXPECT_EQ(pieces_of(0, 5, 1000).size(), 1);
  EXPECT_TRUE(pieces_of(5, 5, 1000).empty());
  EXPECT_TRUE(pieces_of(6, 5, 1000).empty());
}

TEST(ParallelForTest, ALoopWithinALoopRunsInItsThread) {
  const IntraOpThreadsGuard guard(2);
  parallel_for(0, 2, 1, [](int64_t, int64_t) {
    const auto pieces = pieces_of(0, 1000, 1);
    EXPECT_EQ(pieces.size(), 1);
    EXPECT_EQ(pieces.front().thread, std::this_thread::get_id());
  });
}

TEST(ParallelForTest, AnExceptionReachesTheCaller) {
  const IntraOpThreadsGuard guard(2);
  for (const int64_t failing : {0, 1}) {
    EXPECT_THAT(
        [&] {
          parallel_for(0, 2, 1, [&](int64_t first, int64_t) {
            if (first == failing) throw std::runtime_error("the piece failed");
          });
        },
        ::testing::ThrowsMessage<std::runtime_error>("the piece failed"));
  }
}

}  // namespace
}  // namespace lockstep
