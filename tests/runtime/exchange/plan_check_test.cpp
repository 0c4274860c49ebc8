// The check of plans finds faults that are put into correct ones.
#include "lockstep/tests/runtime/exchange/plan_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Plans = std::vector<ExchangePlan>;

std::string problem_with(CollectiveKind kind, PlanAlgorithm algorithm,
                         const std::function<void(Plans&)>& fault) {
  auto plans = plans_of(kind, algorithm, 4);
  fault(plans);
  return problem_of(plans, kind, algorithm);
}

std::string doubling_with(const std::function<void(Plans&)>& fault) {
  return problem_with(CollectiveKind::kAllReduce, PlanAlgorithm::kRecursiveDoubling, fault);
}

TEST(PlanCheck, FindsAMessageThatNobodyReceives) {
  EXPECT_EQ(doubling_with([](Plans& plans) { plans[0].rounds[1].receives.clear(); }),
            "rank 2 sends a message that rank 0 does not receive");
}

TEST(PlanCheck, FindsAMessageThatNobodySends) {
  EXPECT_EQ(doubling_with([](Plans& plans) { plans[3].rounds.pop_back(); }),
            "rank 1 receives a message that rank 3 does not send");
}

TEST(PlanCheck, FindsRanksThatWaitForEachOther) {
  EXPECT_EQ(doubling_with([](Plans& plans) {
              for (const size_t rank : {0, 3}) std::swap(plans[rank].rounds[0], plans[rank].rounds[1]);
            }),
            "rank 0 waits for ever in round 0");
}

TEST(PlanCheck, FindsAContributionThatIsAddedTwice) {
  EXPECT_EQ(doubling_with([](Plans& plans) {
              for (auto& plan : plans) plan.rounds.push_back(plan.rounds[0]);
            }),
            "the value of rank 0 is added twice");
}

TEST(PlanCheck, FindsAMissingContribution) {
  EXPECT_EQ(doubling_with([](Plans& plans) {
              for (auto& plan : plans) plan.rounds.pop_back();
            }),
            "rank 0 has no complete sum in block 0");
}

TEST(PlanCheck, FindsAContributionThatReplacesOthers) {
  EXPECT_EQ(doubling_with([](Plans& plans) { plans[2].rounds[0].receives[0].is_added = false; }),
            "rank 0 has no complete sum in block 0");
}

TEST(PlanCheck, FindsASumInAnotherOrder) {
  EXPECT_EQ(doubling_with([](Plans& plans) {
              for (auto& plan : plans) std::swap(plan.rounds[0], plan.rounds[1]);
            }),
            "rank 0 has a sum in another order in block 0");
}

TEST(PlanCheck, FindsBlocksThatDoNotFit) {
  const auto halving_with = [](const std::function<void(Plans&)>& fault) {
    return problem_with(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, fault);
  };
  EXPECT_EQ(halving_with([](Plans& plans) {
              plans[1].rounds[0].receives[0].blocks = {{0, 2}};
            }),
            "rank 0 and rank 1 have different blocks in message 0");
  EXPECT_EQ(halving_with([](Plans& plans) {
              plans[1].rounds[0].sends[0].blocks = {{3, 2}};
            }),
            "rank 1 has no block 4");
}

TEST(PlanCheck, FindsBlocksWithoutAValue) {
  const auto gather_with = [](const std::function<void(Plans&)>& fault) {
    return problem_with(CollectiveKind::kAllGather, PlanAlgorithm::kDissemination, fault);
  };
  EXPECT_EQ(gather_with([](Plans& plans) {
              for (auto& plan : plans) std::swap(plan.rounds[0], plan.rounds[1]);
            }),
            "rank 0 sends block 1, which has no value");
  EXPECT_EQ(gather_with([](Plans& plans) { plans[0].rounds[0].receives[0].is_added = true; }),
            "rank 0 adds to block 1, which has no value");
  EXPECT_EQ(gather_with([](Plans& plans) {
              plans[0].rounds.back().steps.push_back({1, 0});
            }),
            "rank 0 puts block 0 into block 1 of another size");
}

TEST(PlanCheck, FindsABlockThatIsReceivedWhileItIsSent) {
  EXPECT_EQ(problem_with(CollectiveKind::kAllReduce, PlanAlgorithm::kDirect,
                         [](Plans& plans) {
                           for (auto& plan : plans) {
                             auto& second = plan.rounds[1];
                             for (auto& receive : second.receives) plan.rounds[0].receives.push_back(receive);
                             for (auto& send : second.sends) plan.rounds[0].sends.push_back(send);
                             plan.rounds.pop_back();
                           }
                         }),
            "rank 0 receives into block 1 while it sends it");
}

TEST(PlanCheck, FindsAWrongResult) {
  EXPECT_EQ(problem_with(CollectiveKind::kAllToAll, PlanAlgorithm::kPairwise,
                         [](Plans& plans) {
                           plans[0].rounds[1].sends[0].blocks = {{2, 1}};
                         }),
            "rank 1 has a wrong value in block 4");
}

}  // namespace
}  // namespace lockstep
