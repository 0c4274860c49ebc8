#include "lockstep/training/layouts/all_reduce_model.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// By hand: 4 ranks send 2 * 3 messages and 2 * 3/4 of the bytes.
TEST(RingAllReduce, TakesItsMessagesAndItsShareOfTheBytes) {
  const DeviceLink link{.latency_seconds = 0.5, .bytes_per_second = 100};
  EXPECT_DOUBLE_EQ(ring_bytes(4, 800), 1200);
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(4, 800, link), 6 * 0.5 + 1200.0 / 100);
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(2, 800, link), 2 * 0.5 + 800.0 / 100);
}

TEST(RingAllReduce, OfOneRankIsNothing) {
  EXPECT_EQ(ring_all_reduce_seconds(1, 1e9, {1, 1}), 0);
}

TEST(RingAllReduce, WithoutLatencyNeverTakesTwiceTheBytes) {
  double before = 0;
  for (int ranks = 2; ranks <= 1024; ranks *= 2) {
    const double seconds = ring_all_reduce_seconds(ranks, 1e6, {0, 1e6});
    EXPECT_GT(seconds, before);
    EXPECT_LT(seconds, 2);
    before = seconds;
  }
}

const LinkedMachines kFourByFour{
    .num_machines = 4, .replicas_each = 4, .within = {0.1, 1000}, .between = {0.2, 100}};

// 16 ranks: 30 messages over the slower link, and 2 * 15/16 of the bytes.
TEST(FlatAllReduce, IsARingOfTheSlowestLink) {
  EXPECT_DOUBLE_EQ(flat_all_reduce_seconds(kFourByFour, 1600), 30 * 0.2 + 3000.0 / 100);
}

// Two rings of 4, one after the other: 6 messages and 1.5 times the bytes over each link.
TEST(HierarchicalAllReduce, IsARingWithinAndOneBetween) {
  EXPECT_DOUBLE_EQ(hierarchical_all_reduce_seconds(kFourByFour, 1600),
                   6 * 0.1 + 2400.0 / 1000 + 6 * 0.2 + 2400.0 / 100);
}

TEST(LinkedMachines, OfOneMachineOrOfOneReplicaEachHasNoOtherLink) {
  LinkedMachines machine = kFourByFour;
  machine.num_machines = 1;
  const double within = ring_all_reduce_seconds(4, 1600, machine.within);
  EXPECT_DOUBLE_EQ(flat_all_reduce_seconds(machine, 1600), within);
  EXPECT_DOUBLE_EQ(hierarchical_all_reduce_seconds(machine, 1600), within);
  LinkedMachines single = kFourByFour;
  single.replicas_each = 1;
  const double between = ring_all_reduce_seconds(4, 1600, single.between);
  EXPECT_DOUBLE_EQ(flat_all_reduce_seconds(single, 1600), between);
  EXPECT_DOUBLE_EQ(hierarchical_all_reduce_seconds(single, 1600), between);
}

}  // namespace
}  // namespace lockstep
