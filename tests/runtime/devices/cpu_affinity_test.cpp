#include "lockstep/runtime/devices/internal/cpu_affinity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace lockstep {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(RestrictThisThread, LeavesItTheCpusThatItMayUseAmongThoseGiven) {
  const auto all = cpus_of_this_thread();
  std::thread([&] {
    restrict_this_thread({-1, all.back(), CPU_SETSIZE - 1, CPU_SETSIZE});
    EXPECT_THAT(cpus_of_this_thread(), ElementsAre(all.back()));
    std::thread([&] { EXPECT_THAT(cpus_of_this_thread(), ElementsAre(all.back())); }).join();
  }).join();
  EXPECT_EQ(cpus_of_this_thread(), all);  // another thread
}

TEST(RestrictThisThread, LeavesAThreadThatMayUseNoneOfThemAsItIs) {
  const auto all = cpus_of_this_thread();
  std::thread([&] {
    restrict_this_thread({all.front()});
    restrict_this_thread({});
    EXPECT_THAT(cpus_of_this_thread(), ElementsAre(all.front()));
    if (all.size() > 1) restrict_this_thread({all.back()});
    EXPECT_THAT(cpus_of_this_thread(), ElementsAre(all.front()));
  }).join();
}

const Cpus kFirstNode{0, 1, 2, 3};
const Cpus kSecondNode{4, 5, 6, 7};
const Cpus kAll{0, 1, 2, 3, 4, 5, 6, 7};

TEST(CpusToKeepTo, AreThoseOfTheDevicesNodeIfTheyAreEnough) {
  EXPECT_THAT(cpus_to_keep_to({kFirstNode, kSecondNode}, kAll, 4), ElementsAre(kFirstNode, kSecondNode));
  EXPECT_THAT(cpus_to_keep_to({kFirstNode, kSecondNode}, kAll, 5), Each(IsEmpty()));
  EXPECT_THAT(cpus_to_keep_to({kFirstNode, kFirstNode}, kAll, 2), Each(kFirstNode));
  EXPECT_THAT(cpus_to_keep_to({kFirstNode, kFirstNode, kSecondNode}, kAll, 3),
              ElementsAre(IsEmpty(), IsEmpty(), kSecondNode));
}

TEST(CpusToKeepTo, AreAmongThoseThatTheProcessMayUse) {
  EXPECT_THAT(cpus_to_keep_to({kFirstNode, kSecondNode}, {1, 3, 6}, 1), ElementsAre(Cpus{1, 3}, Cpus{6}));
  EXPECT_THAT(cpus_to_keep_to({kFirstNode, kSecondNode}, {1, 3, 6}, 2), ElementsAre(Cpus{1, 3}, IsEmpty()));
  EXPECT_THAT(cpus_to_keep_to({kFirstNode}, kSecondNode, 1), ElementsAre(IsEmpty()));
}

TEST(CpusToKeepTo, AreAnyForADeviceWhoseNodeIsNotKnown) {
  EXPECT_THAT(cpus_to_keep_to({{}, kSecondNode}, kAll, 1), ElementsAre(IsEmpty(), kSecondNode));
}

}  // namespace
}  // namespace lockstep
