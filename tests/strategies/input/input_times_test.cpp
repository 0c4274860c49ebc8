#include "lockstep/strategies/input/input_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

/// Seven examples, each call for which takes 20 ms or more.
struct SlowNumbers {
  std::optional<size_t> size() const { return 7; }
  Example get_batch(c10::ArrayRef<size_t> indices) const {
    std::this_thread::sleep_for(milliseconds(20));
    return numbered_dataset(7).get_batch(indices);
  }
};

TEST(InputTimes, EachPartHasAtLeastTheTimeThatItSleeps) {
  OnReplicas two(2);
  const auto times = std::make_shared<InputTimes>();
  auto batches =
      two->distribute_dataset(SlowNumbers(), {.global_batch_size = 4, .prefetch = 0, .times = times})
          .map([](Example shard) {
            std::this_thread::sleep_for(milliseconds(10));
            return shard;
          });
  for (const auto& batch : batches) (void)batch;
  // Two batches of two shards each.
  EXPECT_GE(times->seconds(InputPart::kDataset), 0.08);
  EXPECT_GE(times->seconds(InputPart::kMap), 0.04);
  EXPECT_EQ(times->examples(), 7);
  // The loop makes the batches itself, so that it waits for all of it.
  EXPECT_GE(times->seconds(InputPart::kWait),
            times->seconds(InputPart::kDataset) + times->seconds(InputPart::kMap) +
                times->seconds(InputPart::kCopy) + times->seconds(InputPart::kOrder));
}

TEST(InputTimes, ATimeThatEndsInAnErrorCounts) {
  InputTimes times;
  EXPECT_THROW(InputTimes::timed(&times, InputPart::kOrder,
                                 []() -> int {
                                   std::this_thread::sleep_for(milliseconds(5));
                                   throw std::runtime_error("none");
                                 }),
               std::runtime_error);
  EXPECT_GE(times.seconds(InputPart::kOrder), 0.005);
  EXPECT_EQ(InputTimes::timed(nullptr, InputPart::kOrder, [] { return 3; }), 3);
}

}  // namespace
}  // namespace lockstep
