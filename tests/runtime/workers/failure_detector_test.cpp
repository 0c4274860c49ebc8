#include "lockstep/runtime/workers/failure_detector.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using DetectorHearing = FailureDetector::Hearing;
using DetectorTime = FailureDetector::TimePoint;

/// One detector that hears messages made up by the test.
class FailureDetectorTest : public ::testing::Test {
 protected:
  FailureDetector make(int rank) { return {FailureDetectorOptions{.rank = rank, .world_size = 3}, now_}; }
  HeartbeatMessage from(int sender, HeartbeatKind kind = HeartbeatKind::kBeat) {
    return {.kind = kind, .sequence = ++sequence_, .sender = sender};
  }
  /// Lets time pass while the detector runs and hears `message` repeatedly.
  void pass(FailureDetector& detector, milliseconds duration, const HeartbeatMessage* message = nullptr) {
    for (const DetectorTime end = now_ + duration; now_ < end;) {
      now_ += milliseconds(100);
      detector.wake(now_);
      if (message != nullptr) detector.hear(*message, now_);
      detector.tick(now_);
    }
  }

  DetectorTime now_ = DetectorTime{} + std::chrono::hours(1);
  uint64_t sequence_ = 0;
};

TEST_F(FailureDetectorTest, TakesARefusalForTheEndOfAPeerThatWasHeard) {
  FailureDetector hub = make(0);
  hub.refuse(1);
  hub.tick(now_);
  EXPECT_FALSE(hub.loss()) << "it may not have started";
  hub.hear(from(1), now_);
  hub.tick(now_);
  EXPECT_FALSE(hub.loss()) << "the refusal was before it started";

  hub.refuse(1);
  hub.tick(now_);
  ASSERT_TRUE(hub.loss());
  EXPECT_EQ(hub.loss()->rank, 1);
  EXPECT_EQ(hub.loss()->reason, LossReason::kEnded);
}

TEST_F(FailureDetectorTest, BelievesAPeerThatSaysItHasFailed) {
  FailureDetector failed = make(1);
  FailureDetector hub = make(0);
  FailureDetector other = make(2);
  hub.hear(failed.message_to(0, HeartbeatKind::kBeat), now_);
  other.hear(hub.message_to(HeartbeatMessage::kEveryRank, HeartbeatKind::kBeat), now_);
  EXPECT_FALSE(hub.loss());
  failed.fail();
  hub.hear(failed.message_to(0, HeartbeatKind::kBeat), now_);
  ASSERT_TRUE(hub.loss());
  EXPECT_EQ(hub.loss()->rank, 1);
  EXPECT_EQ(hub.loss()->reason, LossReason::kFailed);
  other.hear(hub.message_to(2, HeartbeatKind::kBeat), now_);
  ASSERT_TRUE(other.loss());
  EXPECT_EQ(other.loss()->rank, 1);
  EXPECT_EQ(other.loss()->reason, LossReason::kFailed);
  failed.hear(hub.message_to(1, HeartbeatKind::kBeat), now_);
  EXPECT_FALSE(failed.loss()) << "it knows better than that it was given up";
}

TEST_F(FailureDetectorTest, BelievesAHubThatSaysItHasFailed) {
  FailureDetector hub = make(0);
  FailureDetector worker = make(1);
  hub.fail();
  worker.hear(hub.message_to(HeartbeatMessage::kEveryRank, HeartbeatKind::kLeaving), now_);
  ASSERT_TRUE(worker.loss());
  EXPECT_EQ(worker.loss()->rank, 0);
  EXPECT_EQ(worker.loss()->reason, LossReason::kFailed);
}

TEST_F(FailureDetectorTest, TakesARefusalForTheEndOfAPeerThatHeldItsPort) {
  FailureDetector hub({.rank = 0, .world_size = 3, .are_ports_held = true}, now_);
  pass(hub, seconds(1000));
  EXPECT_FALSE(hub.loss()) << "it may not have begun to send";
  hub.refuse(2);
  hub.tick(now_);
  ASSERT_TRUE(hub.loss());
  EXPECT_EQ(hub.loss()->rank, 2);
  EXPECT_EQ(hub.loss()->reason, LossReason::kEnded);
}

TEST_F(FailureDetectorTest, NeverGivesUpAPeerThatSaidGoodbye) {
  FailureDetector hub = make(0);
  hub.hear(from(1), now_);
  hub.refuse(1);
  hub.hear(from(1, HeartbeatKind::kLeaving), now_);  // sent first, but read second
  hub.tick(now_);
  EXPECT_TRUE(hub.has_left(1));
  hub.refuse(1);
  pass(hub, seconds(10));
  EXPECT_FALSE(hub.loss());
}

TEST_F(FailureDetectorTest, NeverGivesUpAPeerThatWasNotHeard) {
  FailureDetector worker = make(1);
  pass(worker, seconds(1000));
  EXPECT_FALSE(worker.loss());
}

TEST_F(FailureDetectorTest, TakesAReplayForNoSignOfLife) {
  FailureDetector hub = make(0);
  const HeartbeatMessage older = from(1);
  const HeartbeatMessage newer = from(1);
  EXPECT_EQ(hub.hear(newer, now_), DetectorHearing::kNew);
  EXPECT_EQ(hub.hear(newer, now_), DetectorHearing::kOutdated);
  EXPECT_EQ(hub.hear(older, now_), DetectorHearing::kOutdated);
  EXPECT_EQ(hub.hear(from(2), now_), DetectorHearing::kNew) << "each sender has its own numbers";
  pass(hub, seconds(4), &newer);
  ASSERT_TRUE(hub.loss());
  EXPECT_EQ(hub.loss()->rank, 1);
}

TEST_F(FailureDetectorTest, ActsOnNoOutdatedMessageOfAnyKind) {
  FailureDetector hub = make(0);
  FailureDetector worker = make(1);
  for (FailureDetector* detector : {&hub, &worker}) {
    const int sender = detector == &hub ? 1 : 0;
    std::vector<HeartbeatMessage> overtaken;
    for (const int lost : {HeartbeatMessage::kNoRank, 0, 1, 2}) {
      for (const auto kind : {HeartbeatKind::kBeat, HeartbeatKind::kLeaving, HeartbeatKind::kLeavingHeard}) {
        overtaken.push_back(from(sender, kind));
        overtaken.back().lost = lost;
        overtaken.back().reason = LossReason::kFailed;
      }
    }
    EXPECT_EQ(detector->hear(from(sender), now_), DetectorHearing::kNew);
    for (const HeartbeatMessage& message : overtaken)
      EXPECT_EQ(detector->hear(message, now_), DetectorHearing::kOutdated);
    EXPECT_FALSE(detector->loss());
    EXPECT_FALSE(detector->has_left(sender));
    EXPECT_TRUE(detector->awaits_farewell(sender));
  }
}

TEST_F(FailureDetectorTest, DropsForeignMessages) {
  const auto hearing = [&](int rank, HeartbeatMessage message) { return make(rank).hear(message, now_); };
  for (const int sender : {0, 3, -1})
    EXPECT_EQ(hearing(0, from(sender)), DetectorHearing::kForeign) << sender;
  for (const int sender : {1, 2, 3}) EXPECT_EQ(hearing(1, from(sender)), DetectorHearing::kForeign) << sender;
  HeartbeatMessage message = from(0);
  message.receiver = 2;
  EXPECT_EQ(hearing(1, message), DetectorHearing::kForeign) << "meant for another";
  EXPECT_EQ(hearing(2, message), DetectorHearing::kNew);
  for (const int lost : {3, -2}) {
    message = from(0);
    message.lost = lost;
    EXPECT_EQ(hearing(1, message), DetectorHearing::kForeign) << lost;
  }
}

TEST_F(FailureDetectorTest, BelievesTheHubAndKeepsTheFirstLoss) {
  FailureDetector worker = make(1);
  HeartbeatMessage verdict = from(0);
  verdict.lost = 2;
  verdict.reason = LossReason::kEnded;
  worker.hear(verdict, now_);
  pass(worker, seconds(10));
  ASSERT_TRUE(worker.loss());
  EXPECT_EQ(worker.loss()->rank, 2);
  EXPECT_EQ(worker.loss()->reason, LossReason::kEnded);
  EXPECT_TRUE(worker.has_given_up(0)) << "the hub's own silence comes later";
}

TEST_F(FailureDetectorTest, TakesNoVerdictOnAnotherFromAWorker) {
  FailureDetector hub = make(0);
  HeartbeatMessage verdict = from(1);
  verdict.lost = 2;
  EXPECT_EQ(hub.hear(verdict, now_), DetectorHearing::kNew);
  EXPECT_FALSE(hub.loss());
}

TEST_F(FailureDetectorTest, TellsEachRankOfItsOwnLossAndOthersOfTheFirst) {
  FailureDetector hub = make(0);
  for (const int rank : {1, 2}) {
    hub.hear(from(rank), now_);
    hub.refuse(rank);
    hub.tick(now_);
  }
  const auto everyone = hub.message_to(HeartbeatMessage::kEveryRank, HeartbeatKind::kBeat);
  const auto second = hub.message_to(2, HeartbeatKind::kBeat);
  EXPECT_EQ(everyone.lost, 1);
  EXPECT_EQ(everyone.reason, LossReason::kEnded);
  EXPECT_EQ(second.lost, 2);
  EXPECT_GT(second.sequence, everyone.sequence);
}

TEST_F(FailureDetectorTest, BlamesItselfWhereTheJobEndedDuringItsPause) {
  FailureDetector worker = make(1);
  worker.hear(from(0), now_);
  worker.tick(now_);
  now_ += seconds(20);
  worker.wake(now_);
  EXPECT_TRUE(worker.tick(now_));
  EXPECT_FALSE(worker.loss()) << "silence during the pause does not count";
  worker.refuse(0);
  worker.tick(now_);
  ASSERT_TRUE(worker.loss());
  EXPECT_EQ(worker.loss()->rank, 1);
  EXPECT_EQ(worker.loss()->reason, LossReason::kFencedOff);
}

TEST_F(FailureDetectorTest, AddsItsOwnPauseToEveryDeadline) {
  FailureDetector hub = make(0);
  hub.hear(from(1), now_);
  pass(hub, seconds(1));
  now_ += seconds(3);
  pass(hub, milliseconds(2300));
  EXPECT_FALSE(hub.loss()) << "of 6.3 s of silence, 3 s do not count";
  pass(hub, milliseconds(500));
  ASSERT_TRUE(hub.loss());
  EXPECT_EQ(hub.loss()->rank, 1);
}

TEST_F(FailureDetectorTest, BlamesItselfWhereAWorkerLostTheHubDuringItsPause) {
  FailureDetector hub = make(0);
  hub.hear(from(1), now_);
  hub.tick(now_);
  now_ += seconds(3);  // not long enough by itself, but messages were lost as well
  hub.wake(now_);
  HeartbeatMessage accusation = from(1);
  accusation.lost = 0;
  hub.hear(accusation, now_);
  ASSERT_TRUE(hub.loss());
  EXPECT_EQ(hub.loss()->rank, 0);
  EXPECT_EQ(hub.loss()->reason, LossReason::kFencedOff);
}

TEST_F(FailureDetectorTest, AccusesAgainOnceItIsKnownToBeInTheJob) {
  FailureDetector worker = make(1);
  worker.hear(from(0), now_);
  worker.tick(now_);
  now_ += seconds(20);
  pass(worker, seconds(2));
  worker.hear(from(0), now_);
  worker.refuse(0);
  worker.tick(now_);
  ASSERT_TRUE(worker.loss());
  EXPECT_EQ(worker.loss()->rank, 0);
  EXPECT_EQ(worker.loss()->reason, LossReason::kEnded);
}

TEST_F(FailureDetectorTest, GivesUpNobodyWhileItLeaves) {
  FailureDetector hub = make(0);
  hub.hear(from(1), now_);
  hub.leave();
  hub.refuse(1);
  pass(hub, seconds(10));
  EXPECT_FALSE(hub.loss());
}

TEST_F(FailureDetectorTest, AwaitsFarewellOfThoseThatMayListen) {
  FailureDetector hub = make(0);
  hub.hear(from(1), now_);
  hub.leave();
  EXPECT_TRUE(hub.awaits_farewell(1));
  EXPECT_TRUE(hub.awaits_farewell(2)) << "it may hear what cannot be heard of it";
  hub.hear(from(1, HeartbeatKind::kLeavingHeard), now_);
  hub.refuse(2);
  EXPECT_FALSE(hub.awaits_farewell(1));
  EXPECT_FALSE(hub.awaits_farewell(2));

  FailureDetector worker = make(1);
  worker.leave();
  worker.hear(from(0, HeartbeatKind::kLeaving), now_);
  EXPECT_FALSE(worker.awaits_farewell(0)) << "it leaves as well";
}

}  // namespace
}  // namespace lockstep
