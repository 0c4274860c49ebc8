#include "lockstep/parameter_server/shards/applied_pushes.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

TEST(AppliedPushes, KnowEachPushByItsClosureAndNumber) {
  AppliedPushes pushes;
  EXPECT_FALSE(pushes.has({3, 1}));
  pushes.add({3, 1});
  EXPECT_TRUE(pushes.has({3, 1}));
  EXPECT_FALSE(pushes.has({3, 0}));
  EXPECT_FALSE(pushes.has({1, 3}));
}

TEST(AppliedPushes, TakeWhatComesOfAForgottenClosureForApplied) {
  AppliedPushes pushes;
  pushes.add({1, 0});
  pushes.add({4, 2});
  pushes.forget_before(3);
  EXPECT_TRUE(pushes.has({1, 0}));
  EXPECT_TRUE(pushes.has({2, 7}));  // never seen, but too late
  EXPECT_FALSE(pushes.has({3, 0}));
  EXPECT_TRUE(pushes.has({4, 2}));
  pushes.forget_before(1);  // forgotten steps stay forgotten
  EXPECT_TRUE(pushes.has({2, 7}));
}

TEST(AppliedPushes, KeepNoMemoryOfForgottenClosures) {
  AppliedPushes pushes;
  for (uint64_t closure = 0; closure < 100; ++closure) {
    pushes.add({closure, 0});
    pushes.forget_before(closure);
  }
  EXPECT_EQ(pushes.saved(), (std::vector<PushId>{{99, 0}, {99, 0}}));
}

TEST(AppliedPushes, AreTheSameAfterTheyWereSaved) {
  AppliedPushes pushes;
  std::set<PushId> added;
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const PushId push{random() % 20, random() % 20};
    pushes.add(push);
    added.insert(push);
  }
  pushes.forget_before(5);
  const auto restored = AppliedPushes::restored(pushes.saved());
  for (uint64_t closure = 0; closure < 21; ++closure) {
    for (uint64_t number = 0; number < 21; ++number) {
      const PushId push{closure, number};
      EXPECT_EQ(restored.has(push), closure < 5 || added.contains(push)) << closure << ", " << number;
    }
  }
}

TEST(AppliedPushes, RefuseWhatWasNotSaved) {
  EXPECT_THROW(AppliedPushes::restored({}), InvalidArgument);
  EXPECT_THROW(AppliedPushes::restored({{2, 1}}), InvalidArgument);
  EXPECT_THROW(AppliedPushes::restored({{2, 0}, {1, 0}}), InvalidArgument);          // forgotten
  EXPECT_THROW(AppliedPushes::restored({{2, 0}, {3, 1}, {3, 1}}), InvalidArgument);  // twice
  EXPECT_THROW(AppliedPushes::restored({{2, 0}, {3, 1}, {3, 0}}), InvalidArgument);
}

TEST(AppliedPushes, HaveWhatTheOthersHaveOnceTheyAreUnited) {
  AppliedPushes one;
  one.add({2, 0});
  one.add({4, 1});
  AppliedPushes other;
  other.forget_before(3);
  other.add({4, 7});
  other.add({5, 0});
  one.unite(other);
  EXPECT_EQ(one.saved(), (std::vector<PushId>{{3, 0}, {4, 1}, {4, 7}, {5, 0}}));
  other.unite(one);
  EXPECT_EQ(other.saved(), one.saved());
  one.unite({});
  EXPECT_EQ(one.saved(), other.saved());
}

}  // namespace
}  // namespace lockstep
