// Cores of ranks that wait. Oracle: a timeline by hand, and sums over every moment of others.
#include "lockstep/strategies/pipeline/pipeline_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

PipelineTimeline planned(const PipelineSchedule& schedule) {
  return simulate_pipeline(schedule, uniform_pipeline_times(schedule, 1, 2));
}

/// Returns the parts of the actions that compute.
std::vector<double> parts_of(const PipelineTimeline& timeline, int rank, const std::vector<bool>& is_near) {
  const auto parts = waiting_ranks(timeline, rank, is_near);
  std::vector<double> of_computations;
  const auto& actions = timeline.ranks[static_cast<size_t>(rank)];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (is_computation(actions[i].action.op)) {
      of_computations.push_back(parts[i]);
    } else {
      EXPECT_EQ(parts[i], 0) << i;
    }
  }
  return of_computations;
}

// begins at  0   1   2   4   5   6   7   8   9  10  11      13, to 15
// rank 0     F0  F1      B0      F2  B1      F3  B2          B3
// rank 1         F0  B0  F1  B1      F2  B2      F3  B3
TEST(WaitingRanks, OfTwoRanksIsTheOtherWhileItWaits) {
  const auto timeline = planned(make_pipeline_schedule("1f1b", 2, 4));
  ASSERT_EQ(timeline.seconds(), 15);
  EXPECT_THAT(parts_of(timeline, 0, {true, true}), ElementsAre(1, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(parts_of(timeline, 1, {true, true}), ElementsAre(0, 1, 0, 0, 0, 0, 0, 0));
}

TEST(WaitingRanks, OnOtherMachinesHaveNoPart) {
  const auto timeline = planned(make_pipeline_schedule("1f1b", 2, 4));
  EXPECT_THAT(parts_of(timeline, 0, {true, false}), Each(0));
  EXPECT_THAT(parts_of(timeline, 1, {false, true}), Each(0));
}

TEST(WaitingRanks, NeverCountMoreThanThereAre) {
  int num_with_parts = 0;
  for (const char* const kind : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const int micro_batches : {1, ranks, 2 * ranks}) {
        if (std::string(kind) == "interleaved" && micro_batches % ranks != 0) continue;
        const auto timeline = planned(make_pipeline_schedule(kind, ranks, micro_batches, 2));
        std::vector<bool> is_near(static_cast<size_t>(ranks), true);
        if (ranks == 8) is_near[3] = is_near[6] = false;
        std::vector<std::vector<double>> parts;
        std::vector<double> moments;
        for (int rank = 0; rank < ranks; ++rank) {
          parts.push_back(waiting_ranks(timeline, rank, is_near));
          for (const auto& action : timeline.ranks[static_cast<size_t>(rank)])
            moments.push_back(action.begin + 0.25);
        }
        for (const double moment : moments) {
          double used = 0;
          int waiting = 0;
          for (size_t rank = 0; rank < parts.size(); ++rank) {
            if (!is_near[rank]) continue;
            bool is_waiting = true;
            for (size_t i = 0; i < parts[rank].size(); ++i) {
              const auto& action = timeline.ranks[rank][i];
              if (!is_computation(action.action.op) || action.begin > moment || action.end <= moment)
                continue;
              is_waiting = false;
              used += parts[rank][i];
              num_with_parts += parts[rank][i] > 0;
            }
            waiting += is_waiting;
          }
          EXPECT_LE(used, waiting + 1e-9) << kind << " " << ranks << " " << micro_batches << " at " << moment;
        }
      }
    }
  }
  EXPECT_GT(num_with_parts, 100);
}

}  // namespace
}  // namespace lockstep
