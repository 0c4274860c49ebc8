#include "lockstep/strategies/input/auto_shard_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(AutoShardPolicyNames, AreThoseOfTheFlags) {
  EXPECT_EQ(auto_shard_name(AutoShardPolicy::kAuto), "auto");
  EXPECT_EQ(auto_shard_name(AutoShardPolicy::kOff), "off");
  EXPECT_EQ(auto_shard_name(AutoShardPolicy::kData), "data");
  EXPECT_EQ(auto_shard_name(AutoShardPolicy::kFile), "file");
}

TEST(ResolveAutoShard, DividesByFileWhereEachWorkerGetsOne) {
  for (int workers = 1; workers <= 4; ++workers) {
    for (size_t files = 0; files <= 5; ++files) {
      const bool enough = static_cast<int>(files) >= workers;
      EXPECT_EQ(resolve_auto_shard(AutoShardPolicy::kAuto, files, workers),
                enough ? AutoShardPolicy::kFile : AutoShardPolicy::kData)
          << files << " files, " << workers << " workers";
      for (const auto policy : {AutoShardPolicy::kOff, AutoShardPolicy::kData})
        EXPECT_EQ(resolve_auto_shard(policy, files, workers), policy);
    }
  }
}

TEST(ResolveAutoShard, RefusesFewerFilesThanWorkers) {
  EXPECT_EQ(resolve_auto_shard(AutoShardPolicy::kFile, 3, 3), AutoShardPolicy::kFile);
  EXPECT_THAT(message_of<InvalidArgument>([] { resolve_auto_shard(AutoShardPolicy::kFile, 2, 3); }),
              AllOf(HasSubstr("3 or more"), HasSubstr("but got 2")));
  EXPECT_THAT(message_of<InvalidArgument>([] { resolve_auto_shard(AutoShardPolicy::kFile, 0, 1); }),
              AllOf(HasSubstr("1 or more"), HasSubstr("but got 0")));
}

TEST(FilesOfWorker, DealsThemOutInTurns) {
  const std::vector<std::string> files{"a", "b", "c", "d", "e"};
  EXPECT_THAT(files_of_worker(files, 0, 1), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(files_of_worker(files, 0, 3), ElementsAre("a", "d"));
  EXPECT_THAT(files_of_worker(files, 1, 3), ElementsAre("b", "e"));
  EXPECT_THAT(files_of_worker(files, 2, 3), ElementsAre("c"));
  EXPECT_THAT(files_of_worker(files, 5, 6), IsEmpty());
}

TEST(ShareOfGlobalBatch, AddsUpToTheBatchAndIsInProportionToTheReplicas) {
  const std::vector<int> workers{2, 1, 3, 1};
  for (int64_t size = 0; size <= 40; ++size) {
    int first = 0;
    int64_t total = 0;
    for (const int count : workers) {
      const int64_t share = share_of_global_batch(size, first, count, 7);
      EXPECT_EQ(share, size * (first + count) / 7 - size * first / 7);
      EXPECT_LT(std::abs(static_cast<double>(share) - static_cast<double>(size) * count / 7), 1);
      first += count;
      total += share;
    }
    EXPECT_EQ(total, size);
  }
}

TEST(ShareOfGlobalBatch, DoesNotOverflow) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(share_of_global_batch(kHuge, 0, 1024, 1024), kHuge);
  EXPECT_EQ(share_of_global_batch(kHuge, 0, 512, 1024) + share_of_global_batch(kHuge, 512, 512, 1024), kHuge);
}

}  // namespace
}  // namespace lockstep
