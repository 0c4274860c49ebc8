#include "lockstep/runtime/workers/stall_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string worker_name(int worker) {
  return "worker " + std::to_string(worker) + " (host" + std::to_string(worker) + ")";
}

CollectivePosition in_sum(uint64_t sequence, milliseconds time) {
  return {.op = "gradients", .sequence = sequence, .description = "a sum of [3]", .time = time};
}

TEST(StallReport, NamesWhoWaitsForWhomWhereAndForHowLong) {
  const CollectivePosition idle{.op = "gradients", .sequence = 17, .time = seconds(33)};
  EXPECT_EQ(stall_report(in_sum(17, seconds(31)), {in_sum(17, seconds(31)), idle, in_sum(17, seconds(30))},
                         worker_name),
            "[stall] worker 0 (host0) and worker 2 (host2) have waited for 31 s in collective #17 of "
            "gradients (a sum of "
            "[3]) for worker 1 (host1); worker 1 (host1) has been in no collective for 33 s, its next one is "
            "collective "
            "#17 of gradients");
}

TEST(StallReport, ShowsWorkersThatWaitForEachOther) {
  const CollectivePosition elsewhere{
      .op = "between runs", .sequence = 4, .description = "gather", .time = seconds(50)};
  EXPECT_THAT(stall_report(in_sum(17, seconds(31)), {in_sum(17, seconds(31)), elsewhere}, worker_name),
              HasSubstr("for worker 1 (host1); worker 1 (host1) has waited for 50 s in collective #4 of "
                        "between runs (gather)"));
}

TEST(StallReport, SaysWhoDoesNotAnswerAndThatAllAreThere) {
  EXPECT_THAT(stall_report(in_sum(17, seconds(31)), {in_sum(17, seconds(31)), std::nullopt}, worker_name),
              HasSubstr("; worker 1 (host1) does not answer"));
  EXPECT_THAT(
      stall_report(in_sum(17, seconds(31)), {in_sum(17, seconds(31)), in_sum(17, seconds(31))}, worker_name),
      HasSubstr("where all workers are"));
}

/// Workers that share a store and whose positions the test sets.
class StallDetectorTest : public ::testing::Test {
 protected:
  struct Worker {
    Mutex mutex;
    CollectivePosition position LOCKSTEP_GUARDED_BY(mutex){.op = "gradients"};
    std::vector<std::string> reports LOCKSTEP_GUARDED_BY(mutex);
    std::exception_ptr failure LOCKSTEP_GUARDED_BY(mutex);
    std::unique_ptr<StallDetector> watch;
  };

  StallDetectorTest() {
    for (int rank = 0; rank < 3; ++rank) {
      auto& worker = workers_[rank];
      worker.watch = std::make_unique<StallDetector>(
          StallDetector::Options{.rank = rank,
                                 .size = 3,
                                 .store = store_,
                                 .name_of = worker_name,
                                 .positions =
                                     [&worker] {
                                       MutexLock lock(worker.mutex);
                                       return std::vector<CollectivePosition>{worker.position};
                                     },
                                 .log =
                                     [&worker](const std::string& report) {
                                       MutexLock lock(worker.mutex);
                                       worker.reports.push_back(report);
                                     },
                                 .fail =
                                     [&worker](const std::exception_ptr& error) {
                                       MutexLock lock(worker.mutex);
                                       if (!worker.failure) worker.failure = error;
                                     },
                                 .report_after = seconds(30),
                                 .period = milliseconds(10)});
    }
  }

  void set_position(int rank, const CollectivePosition& position) {
    MutexLock lock(workers_[rank].mutex);
    workers_[rank].position = position;
  }
  std::vector<std::string> reports(int rank) {
    MutexLock lock(workers_[rank].mutex);
    return workers_[rank].reports;
  }
  std::exception_ptr failure(int rank) {
    MutexLock lock(workers_[rank].mutex);
    return workers_[rank].failure;
  }
  static void await(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(5));
    ASSERT_TRUE(condition());
  }

  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  std::map<int, Worker> workers_;
};

TEST_F(StallDetectorTest, TheFirstOfThoseThatWaitReportsOnceAndAgainAfterTwiceTheTime) {
  set_position(2, in_sum(17, seconds(31)));
  set_position(1, in_sum(17, seconds(31)));
  await([&] { return !reports(1).empty(); });
  // A report is not repeated.
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_THAT(reports(1),
              ElementsAre(StartsWith("[stall] worker 1 (host1) and worker 2 (host2) have waited for 31 s")));
  set_position(1, in_sum(17, seconds(61)));
  await([&] { return reports(1).size() == 2; });
  EXPECT_THAT(reports(0), IsEmpty());
  EXPECT_THAT(reports(2), IsEmpty());
}

TEST_F(StallDetectorTest, NobodyReportsShortWaits) {
  for (int rank = 0; rank < 3; ++rank) set_position(rank, in_sum(17, seconds(29)));
  std::this_thread::sleep_for(milliseconds(300));
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(reports(rank), IsEmpty());
}

TEST_F(StallDetectorTest, WaitingForAWorkerThatHasEndedIsAMismatch) {
  StallDetector::tell_end(*store_, 2, {17});
  set_position(0, in_sum(17, milliseconds(1)));
  await([&] { return failure(0) != nullptr; });
  EXPECT_THAT(message_of<CollectiveMismatch>(failure(0)),
              AllOf(HasSubstr("collective #17: worker 0 (host0) called a sum of [3]"),
                    HasSubstr("worker 2 (host2) came to the end without it")));
  EXPECT_EQ(failure(1), nullptr);
}

TEST_F(StallDetectorTest, AWorkerThatHasEndedAfterACollectiveMayHaveSentWhatIsOnItsWay) {
  StallDetector::tell_end(*store_, 2, {18});
  StallDetector::tell_end(*store_, 1, {30, 4});
  set_position(0, in_sum(17, milliseconds(1)));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(failure(0), nullptr);
  set_position(0, in_sum(18, milliseconds(1)));
  await([&] { return failure(0) != nullptr; });
  EXPECT_THAT(message_of<CollectiveMismatch>(failure(0)), HasSubstr("but worker 2 (host2) came to the end"));
}

TEST_F(StallDetectorTest, ChannelsOfOneNameAreToldApart) {
  auto second = in_sum(17, seconds(31));
  second.channel = 1;
  set_position(0, in_sum(17, seconds(31)));
  set_position(1, second);
  set_position(2, second);
  await([&] { return !reports(0).empty() && !reports(1).empty(); });
  EXPECT_THAT(reports(0).front(),
              AllOf(HasSubstr("worker 0 (host0) has waited"),
                    HasSubstr("for worker 1 (host1) and worker 2 (host2); worker 1 (host1) has waited")));
}

}  // namespace
}  // namespace lockstep
