#include "lockstep/runtime/exchange/make_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <tuple>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/runtime/exchange/plan_check.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllGather, CollectiveKind::kBroadcast,
                                     CollectiveKind::kGather,    CollectiveKind::kAllToAll};

using Way = std::tuple<CollectiveKind, PlanAlgorithm>;

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const auto kind : kKinds) {
    for (const auto algorithm : algorithms_for(kind)) all.emplace_back(kind, algorithm);
  }
  return all;
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kGather;
}

class Plans : public testing::TestWithParam<Way> {
 protected:
  CollectiveKind kind() const { return std::get<0>(GetParam()); }
  PlanAlgorithm algorithm() const { return std::get<1>(GetParam()); }

  void check(int size, int root) {
    ASSERT_EQ(problem_of(plans_of(kind(), algorithm(), size, root), kind(), algorithm(), root), "")
        << to_string(kind()) << " by " << to_string(algorithm()) << " with " << size << " ranks, root "
        << root;
  }
};

TEST_P(Plans, AreCompleteForUpTo64Ranks) {
  for (int size = 1; size <= few_if_sanitized(64, 17); ++size) {
    std::set<int> roots{0};
    if (has_root(kind())) roots.insert({1 % size, size / 3, size / 2, size - 1});
    for (const int root : roots) check(size, root);
  }
}

// Plans in which every rank has a message for each other one grow with the square of the number of ranks.
TEST_P(Plans, AreCompleteForManyRanks) {
  const std::set<PlanAlgorithm> long_ones{PlanAlgorithm::kDirect, PlanAlgorithm::kRing,
                                          PlanAlgorithm::kPairwise};
  const bool is_long = long_ones.contains(algorithm()) || kind() == CollectiveKind::kAllToAll;
  std::mt19937 random(20);
  std::uniform_int_distribution<int> sizes(65, is_long || kHasSanitizer ? 160 : 2048);
  for (int i = 0; i < 2; ++i) {
    const int size = sizes(random);
    check(size, has_root(kind()) ? std::uniform_int_distribution<int>(0, size - 1)(random) : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Plans, testing::ValuesIn(ways()), [](const auto& tested) {
  return to_string(std::get<0>(tested.param)) + "_" + to_string(std::get<1>(tested.param));
});

// (0 + 1) + (2 + 3), and so on. With five ranks, the first two become one.
TEST(SumOrder, IsABalancedTreeOfNeighbours) {
  const auto text = [](int size) {
    std::vector<std::string> parts;
    for (int rank = 0; rank < size; ++rank) parts.push_back(std::to_string(rank));
    for (const auto& step : sum_order(size)) {
      auto& into = parts[static_cast<size_t>(step.into)];
      into = "(" + into + parts[static_cast<size_t>(step.from)] + ")";
    }
    return parts[0];
  };
  EXPECT_EQ(text(1), "0");
  EXPECT_EQ(text(2), "(01)");
  EXPECT_EQ(text(3), "((01)2)");
  EXPECT_EQ(text(4), "((01)(23))");
  EXPECT_EQ(text(5), "(((01)2)(34))");
  EXPECT_EQ(text(7), "(((01)(23))((45)6))");
  EXPECT_EQ(text(8), "(((01)(23))((45)(67)))");
}

TEST(MakePlan, RefusesWhatItHasNoPlanFor) {
  const auto message = [](const auto& make) {
    try {
      make();
      return std::string("no error");
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(message([] { make_plan(CollectiveKind::kGather, PlanAlgorithm::kRing, 0, 2); }),
            "there is no ring algorithm for gather; expected one of tree, direct");
  EXPECT_EQ(message([] { make_plan(CollectiveKind::kGather, PlanAlgorithm::kTree, 2, 2); }),
            "expected a rank from 0 to 1, but got 2");
  EXPECT_EQ(message([] { make_plan(CollectiveKind::kGather, PlanAlgorithm::kTree, 0, 2, -1); }),
            "expected a root from 0 to 1, but got -1");
  EXPECT_EQ(message([] { make_plan(CollectiveKind::kGather, PlanAlgorithm::kTree, 0, 0); }),
            "expected at least 1 rank, but got 0");
}

TEST(PlanText, ShowsEachRound) {
  EXPECT_EQ(plan_text(make_plan(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, 1, 4)),
            "rank 1 of 4, 4 blocks and 0 for scratch\n"
            "round 0: send 0..1 to 0; add 2..3 from 0;\n"
            "round 1: send 3 to 3; add 2 from 3;\n"
            "round 2: send 2 to 3; receive 3 from 3;\n"
            "round 3: send 2..3 to 0; receive 0..1 from 0;\n");
}

}  // namespace
}  // namespace lockstep
