#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/runtime/workers/failure_detector.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using DetectorTime = FailureDetector::TimePoint;

/// Faults of every link, drawn separately for every message.
struct SimulatedFaults {
  int lost_percent = 0;
  int duplicated_percent = 0;
  milliseconds most_delay{1};
  milliseconds most_thread_delay{0};  ///< now and then, about every ten seconds
};

/// The detectors of one job over a simulated network and clock.
class SimulatedJob {
 public:
  explicit SimulatedJob(int world_size, SimulatedFaults faults = {}) : faults_(faults) {
    nodes_.reserve(static_cast<size_t>(world_size));
    for (int rank = 0; rank < world_size; ++rank) {
      nodes_.push_back({.detector = {{.rank = rank, .world_size = world_size}, now_}});
    }
  }

  void run_for(milliseconds duration) {
    constexpr milliseconds kStep{10};
    for (const DetectorTime end = now_ + duration; now_ < end; now_ += kStep) {
      for (; !on_the_way_.empty() && on_the_way_.begin()->first <= now_;
           on_the_way_.erase(on_the_way_.begin())) {
        const auto& [receiver, message] = on_the_way_.begin()->second;
        nodes_[static_cast<size_t>(receiver)].arrived.push_back(message);
      }
      for (Node& node : nodes_) {
        if (node.sleeps_until <= now_) run(node);
      }
    }
  }

  /// Messages wait for a stopped process.
  void stop(int rank, milliseconds duration = std::chrono::hours(1)) {
    nodes_[static_cast<size_t>(rank)].sleeps_until = now_ + duration;
  }
  void cut(int from, int to) { cut_.insert({from, to}); }

  FailureDetector& detector(int rank) { return nodes_[static_cast<size_t>(rank)].detector; }
  DetectorTime now() const { return now_; }
  int delivered() const { return delivered_; }
  int lost() const { return lost_; }

  /// The rank that `rank` considers lost, or -1.
  int lost_rank(int rank) { return detector(rank).loss() ? detector(rank).loss()->rank : -1; }

 private:
  struct Node {
    FailureDetector detector;
    DetectorTime sleeps_until{};
    std::vector<HeartbeatMessage> arrived;
  };

  int64_t draw(int64_t most) { return static_cast<int64_t>(generator_() % static_cast<uint64_t>(most + 1)); }

  void run(Node& node) {
    if (node.arrived.empty() && now_ < node.detector.next_tick()) return;
    if (faults_.most_thread_delay.count() > 0 && draw(99) == 0) {
      node.sleeps_until = now_ + milliseconds(draw(faults_.most_thread_delay.count()));
    }
    node.detector.wake(now_);
    for (const HeartbeatMessage& message : std::exchange(node.arrived, {})) node.detector.hear(message, now_);
    if (!node.detector.tick(now_)) return;
    const int rank = static_cast<int>(&node - nodes_.data());
    if (rank != 0) return send(rank, 0);
    for (int other = 1; other < static_cast<int>(nodes_.size()); ++other) send(0, other);
  }

  void send(int from, int to) {
    const HeartbeatMessage message = detector(from).message_to(to, HeartbeatKind::kBeat);
    if (cut_.contains({from, to})) return;
    for (int copies = draw(99) < faults_.duplicated_percent ? 2 : 1; copies > 0; --copies) {
      const bool is_lost = draw(99) < faults_.lost_percent;
      ++(is_lost ? lost_ : delivered_);
      const milliseconds delay(draw(faults_.most_delay.count()));
      if (!is_lost) on_the_way_.emplace(now_ + delay, std::pair(to, message));
    }
  }

  const SimulatedFaults faults_;
  std::vector<Node> nodes_;
  std::multimap<DetectorTime, std::pair<int, HeartbeatMessage>> on_the_way_;
  std::set<std::pair<int, int>> cut_;
  DetectorTime now_ = DetectorTime{} + std::chrono::hours(1);
  std::mt19937_64 generator_{20240501};
  int delivered_ = 0;
  int lost_ = 0;
};

TEST(FailureDetectorSimulation, FindsASilentWorkerWithinFiveSecondsEverywhere) {
  SimulatedJob job(4);
  job.run_for(seconds(10));
  job.stop(2);
  job.run_for(milliseconds(3400));
  for (const int rank : {0, 1, 3}) EXPECT_EQ(job.lost_rank(rank), -1) << rank << ", before 3.5 s";
  job.run_for(milliseconds(1600));
  for (const int rank : {0, 1, 3}) {
    ASSERT_EQ(job.lost_rank(rank), 2) << "seen by rank " << rank;
    EXPECT_EQ(job.detector(rank).loss()->reason, LossReason::kSilent);
  }
}

TEST(FailureDetectorSimulation, FindsASilentHubWithinFiveSeconds) {
  SimulatedJob job(3);
  job.run_for(seconds(10));
  job.stop(0);
  job.run_for(seconds(5));
  for (const int rank : {1, 2}) {
    ASSERT_EQ(job.lost_rank(rank), 0);
    EXPECT_EQ(job.detector(rank).loss()->reason, LossReason::kSilent);
  }
}

TEST(FailureDetectorSimulation, FindsALinkCutInOneDirection) {
  SimulatedJob from_worker(3);
  from_worker.run_for(seconds(2));
  from_worker.cut(1, 0);
  from_worker.run_for(seconds(5));
  EXPECT_EQ(from_worker.lost_rank(0), 1);
  EXPECT_EQ(from_worker.lost_rank(2), 1);
  ASSERT_EQ(from_worker.lost_rank(1), 1);
  EXPECT_EQ(from_worker.detector(1).loss()->reason, LossReason::kFencedOff);
  EXPECT_EQ(from_worker.detector(1).loss()->own_pause, milliseconds(0));

  SimulatedJob to_worker(3);
  to_worker.run_for(seconds(2));
  to_worker.cut(0, 1);
  to_worker.run_for(seconds(5));
  EXPECT_EQ(to_worker.lost_rank(1), 0);
  ASSERT_EQ(to_worker.lost_rank(0), 1);
  EXPECT_EQ(to_worker.detector(0).loss()->reason, LossReason::kCutOff);
  EXPECT_EQ(to_worker.lost_rank(2), 1);
}

TEST(FailureDetectorSimulation, RaisesNoAlarmUnderLossDelayAndDuplicates) {
  SimulatedJob job(4, {.lost_percent = 50, .duplicated_percent = 10, .most_delay = milliseconds(500)});
  job.run_for(seconds(5000));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job.lost_rank(rank), -1) << "seen by rank " << rank;
  const double share = static_cast<double>(job.lost()) / (job.lost() + job.delivered());
  EXPECT_NEAR(share, 0.5, 0.01);
  EXPECT_GT(job.delivered(), 100'000);

  job.stop(3);
  job.run_for(seconds(6));
  EXPECT_EQ(job.lost_rank(0), 3) << "a true loss is found all the same";
}

TEST(FailureDetectorSimulation, RaisesNoAlarmWhereThreadsAreDelayed) {
  SimulatedJob job(4, {.most_delay = milliseconds(500), .most_thread_delay = milliseconds(2000)});
  job.run_for(seconds(5000));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job.lost_rank(rank), -1) << "seen by rank " << rank;
}

TEST(FailureDetectorSimulation, AccusesNobodyAfterItsOwnPause) {
  for (const int stopped : {0, 1}) {
    SimulatedJob job(3);
    job.run_for(seconds(10));
    job.stop(stopped, seconds(20));
    job.run_for(seconds(25));
    ASSERT_EQ(job.lost_rank(stopped), stopped);
    EXPECT_EQ(job.detector(stopped).loss()->reason, LossReason::kFencedOff);
    EXPECT_NEAR(static_cast<double>(job.detector(stopped).loss()->own_pause.count()), 20'000, 200);
    EXPECT_EQ(job.lost_rank(2), stopped);
  }
}

TEST(FailureDetectorSimulation, ForgivesAPauseOfTheWholeJob) {
  SimulatedJob job(3);
  job.run_for(seconds(10));
  for (const int rank : {0, 1, 2}) job.stop(rank, seconds(20));
  job.run_for(seconds(100));
  for (const int rank : {0, 1, 2}) EXPECT_EQ(job.lost_rank(rank), -1) << "seen by rank " << rank;

  job.stop(1);
  job.run_for(seconds(5));
  EXPECT_EQ(job.lost_rank(0), 1) << "and accuses again later";
}

}  // namespace
}  // namespace lockstep
