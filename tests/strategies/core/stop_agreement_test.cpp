#include "lockstep/strategies/core/stop_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;

constexpr int kSignal = 15, kOtherSignal = 2;

TEST(StopAgreementTest, OneProcessStopsAfterTheStepInWhichItIsAsked) {
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  int reason = 0;
  StopAgreement agreement(strategy, [&] { return reason; });
  EXPECT_EQ(agreement.should_stop(), 0);
  reason = kSignal;
  EXPECT_EQ(agreement.should_stop(), kSignal);
  EXPECT_EQ(agreement.should_stop(), kSignal);
}

/// A step that no worker ends before all have reached it.
void step_together(Strategy& strategy) {
  strategy.run([](ReplicaContext& replica) { return replica.all_reduce(ReduceOp::kSum, torch::ones({})); });
}

/// The reason that each of three workers was given to stop, and after which step.
struct Told {
  std::vector<int> steps = std::vector<int>(3, 0);
  std::vector<int> reasons = std::vector<int>(3, 0);
};

/// `ask(rank, step)` returns why a worker is asked to stop after that step, or 0.
Told stop_workers(const std::function<int(int rank, int step)>& ask, int last_step,
                  const std::function<void(int rank)>& pause) {
  Told told;
  expect_no_worker_failed(run_strategies({1, 1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const int rank = strategy.cluster_resolver()->rank();
    std::atomic<int> reason{0};
    StopAgreement agreement(strategy, [&] { return reason.load(); });
    for (int step = 1; step <= last_step; ++step) {
      step_together(strategy);
      pause(rank);
      if (reason == 0) reason = ask(rank, step);
      if (const int agreed = agreement.should_stop()) {
        told.steps[static_cast<size_t>(rank)] = step;
        told.reasons[static_cast<size_t>(rank)] = agreed;
        break;
      }
    }
  }));
  return told;
}

constexpr int kManySteps = 1000000;

TEST(StopAgreementTest, AllWorkersStopAfterTheSameStepWhereOneIsAsked) {
  for (int asked = 0; asked < 3; ++asked) {
    const auto told = stop_workers(
        [&](int rank, int step) { return rank == asked && step == 5 ? kSignal : 0; }, kManySteps, [](int) {});
    EXPECT_GE(told.steps[0], 5);
    EXPECT_EQ(told.steps, std::vector<int>(3, told.steps[0])) << asked;
    EXPECT_EQ(told.reasons, std::vector<int>(3, kSignal)) << asked;
  }
}

TEST(StopAgreementTest, WorkersThatAreAskedAtOnceForDifferentReasonsAgreeOnOne) {
  const auto told =
      stop_workers([](int rank, int step) { return step != 3   ? 0
                                                   : rank == 1 ? kOtherSignal
                                                               : kSignal; },
                   kManySteps, [](int) {});
  EXPECT_EQ(told.steps, std::vector<int>(3, told.steps[0]));
  EXPECT_THAT(told.reasons[0], AnyOf(kSignal, kOtherSignal));
  EXPECT_EQ(told.reasons, std::vector<int>(3, told.reasons[0]));
}

TEST(StopAgreementTest, SlowWorkersAreWaitedForWithinAStep) {
  const auto told = stop_workers(
      [](int rank, int step) { return rank == 0 && step == 2 ? kSignal : 0; }, kManySteps,
      [](int rank) { std::this_thread::sleep_for(std::chrono::milliseconds(rank == 2 ? 50 : 0)); });
  EXPECT_EQ(told.steps, std::vector<int>(3, told.steps[0]));
}

TEST(StopAgreementTest, ARequestAtTheEndHoldsNobody) {
  // A worker that is asked in the last step may find that the others have finished.
  for (int last = 1; last < 4; ++last) {
    const auto told = stop_workers(
        [&](int rank, int step) { return rank == 1 && step == last ? kSignal : 0; }, last, [](int) {});
    for (const int step : told.steps) EXPECT_THAT(step, AnyOf(0, last));
  }
}

TEST(StopAgreementTest, WhereNobodyIsAskedAllStepsAreMade) {
  const auto told = stop_workers([](int, int) { return 0; }, 50, [](int) {});
  EXPECT_EQ(told.steps, std::vector<int>(3, 0));
}

TEST(StopAgreementTest, AWorkerThatIsLostHoldsNobody) {
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_asked = strategy.cluster_resolver()->rank() == 0;
    StopAgreement agreement(strategy, [&] { return is_asked ? kSignal : 0; });
    if (!is_asked) throw std::runtime_error("lost");
    for (int step = 0; step < kManySteps; ++step) {
      agreement.should_stop();
      step_together(strategy);
    }
  });
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

}  // namespace
}  // namespace lockstep
