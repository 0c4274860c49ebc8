#include "lockstep/datasets/images/internal/for_each_image.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

class ForEachImageTest : public ::testing::Test {
 protected:
  ~ForEachImageTest() override { at::set_num_threads(threads_before_); }

  /// Returns the thread that visited each image, and expects that each was visited once.
  static std::vector<std::thread::id> visit(int64_t count, int64_t values, int64_t values_of_thread) {
    std::vector<std::thread::id> threads(static_cast<size_t>(count));
    std::vector<int> visits(threads.size());
    for_each_image(count, values, values_of_thread, [&](int64_t i) {
      ++visits[static_cast<size_t>(i)];
      threads[static_cast<size_t>(i)] = std::this_thread::get_id();
    });
    EXPECT_EQ(std::ranges::count(visits, 1), count);
    return threads;
  }

  static size_t num_threads(const std::vector<std::thread::id>& threads) {
    return std::set(threads.begin(), threads.end()).size();
  }

 private:
  const int threads_before_ = at::get_num_threads();
};

TEST_F(ForEachImageTest, LargeImagesAreSpreadOverTheThreads) {
  at::set_num_threads(3);
  EXPECT_EQ(num_threads(visit(3, 1000, 1000)), 3);
  EXPECT_EQ(num_threads(visit(64, 1000, 1000)), 3);
}

TEST_F(ForEachImageTest, SmallImagesShareAThread) {
  at::set_num_threads(3);
  EXPECT_EQ(num_threads(visit(64, 10, 640)), 1);
  EXPECT_EQ(num_threads(visit(64, 10, 320)), 2);
}

TEST_F(ForEachImageTest, OneThreadVisitsAllImagesItself) {
  at::set_num_threads(1);
  const auto threads = visit(5, 1000, 1);
  EXPECT_EQ(std::ranges::count(threads, std::this_thread::get_id()), 5);
}

TEST_F(ForEachImageTest, NoImagesAndEmptyOnesAreNoErrors) {
  EXPECT_TRUE(visit(0, 10, 10).empty());
  visit(3, 0, 10);
}

}  // namespace
}  // namespace lockstep
