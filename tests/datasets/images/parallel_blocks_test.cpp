#include "lockstep/datasets/images/internal/parallel_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(ForEachBlock, VisitsEveryIndexOnce) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{64}, size_t{1000}}) {
    for (const int64_t num_threads : {0, 1, 3}) {
      std::vector<std::atomic<int>> visits(count);
      for_each_block(count, num_threads, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++visits[i];
      });
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(visits[i], 1) << i << " of " << count;
    }
  }
}

TEST(ForEachBlock, ReportsTheFirstFailingBlockEvenWhereItFailsLast) {
  const auto work = [](size_t begin, size_t) {
    if (begin == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw std::runtime_error(std::to_string(begin));
  };
  try {
    for_each_block(1000, 4, work);
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "0");
  }
}

TEST(ForEachBlock, BeginsNoBlockAfterAFailure) {
  std::atomic<int> begun{0};
  EXPECT_THROW(for_each_block(100000, 1,
                              [&](size_t, size_t) {
                                ++begun;
                                throw std::runtime_error("first");
                              }),
               std::runtime_error);
  EXPECT_EQ(begun, 1);
}

}  // namespace
}  // namespace lockstep
