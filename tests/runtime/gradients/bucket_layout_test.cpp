#include "lockstep/runtime/gradients/bucket_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace lockstep {
namespace {

using Buckets = std::vector<std::vector<size_t>>;

std::vector<BucketItem> items_of(const std::vector<int64_t>& bytes) {
  std::vector<BucketItem> items;
  for (const int64_t size : bytes) items.push_back({size, "Float cpu"});
  return items;
}

TEST(BucketLayout, ClosesASmallFirstBucketAndThenFullOnesInTheGivenOrder) {
  EXPECT_EQ(assign_buckets(items_of({4, 4, 4, 4, 4, 4, 4}), {6, 5, 4, 3, 2, 1, 0},
                           {.first_bucket_bytes = 4, .bucket_bytes = 10}),
            (Buckets{{6}, {5, 4, 3}, {2, 1, 0}}));
}

TEST(BucketLayout, GivesAnItemAboveTheLimitTheRestOfItsBucket) {
  EXPECT_EQ(assign_buckets(items_of({1, 100, 1}), {0, 1, 2}, {.first_bucket_bytes = 2, .bucket_bytes = 10}),
            (Buckets{{0, 1}, {2}}));
}

TEST(BucketLayout, KeepsKeysApartAndOrdersBucketsByTheirLastItem) {
  std::vector<BucketItem> items{{4, "Float cpu"}, {8, "Double cpu"}, {4, "Float cpu"}, {8, "Double cpu"}};
  EXPECT_EQ(assign_buckets(items, {0, 1, 2, 3}, {.first_bucket_bytes = 100, .bucket_bytes = 100}),
            (Buckets{{0, 2}, {1, 3}}));
  EXPECT_EQ(assign_buckets(items, {1, 3, 0, 2}, {.first_bucket_bytes = 8, .bucket_bytes = 100}),
            (Buckets{{1}, {3}, {0, 2}}));
}

TEST(BucketLayout, IsEmptyForNoItems) {
  EXPECT_TRUE(assign_buckets({}, {}, {}).empty());
}

TEST(BucketLayout, HoldsEveryItemOnceInArrivalOrderWithinAKeyAndNoBucketThatCouldHaveLeftEarlier) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<BucketItem> items(1 + random() % 40);
    for (auto& item : items)
      item = {static_cast<int64_t>(random() % 50), random() % 2 == 0 ? "Float cpu" : "Double cpu"};
    std::vector<size_t> order(items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<size_t> position(items.size());
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    const BucketOptions options{.first_bucket_bytes = 20, .bucket_bytes = 60};
    const auto buckets = assign_buckets(items, order, options);

    std::vector<size_t> all;
    size_t last_filled = 0;
    for (const auto& bucket : buckets) {
      ASSERT_FALSE(bucket.empty());
      int64_t bytes = 0;
      for (size_t i = 0; i < bucket.size(); ++i) {
        EXPECT_EQ(items[bucket[i]].key, items[bucket[0]].key);
        // A bucket is closed once it reaches its size: never before its last item.
        EXPECT_LT(bytes, options.bucket_bytes);
        bytes += items[bucket[i]].bytes;
        if (i > 0) {
          EXPECT_LT(position[bucket[i - 1]], position[bucket[i]]);
        }
      }
      EXPECT_LE(last_filled, position[bucket.back()]);
      last_filled = position[bucket.back()];
      all.insert(all.end(), bucket.begin(), bucket.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<size_t> expected(items.size());
    std::iota(expected.begin(), expected.end(), size_t{0});
    EXPECT_EQ(all, expected);
  }
}

}  // namespace
}  // namespace lockstep
