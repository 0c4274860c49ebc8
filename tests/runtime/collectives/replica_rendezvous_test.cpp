#include "lockstep/runtime/collectives/replica_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/runtime/collectives/rendezvous_arrivals.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RendezvousOf : public testing::TestWithParam<int> {};

TEST_P(RendezvousOf, RunsEveryPartOfEveryMeetingOnce) {
  const int ranks = GetParam();
  ReplicaRendezvous rendezvous(ranks, kLong);
  constexpr int kMeetings = 50;
  std::vector<std::vector<std::atomic<int>>> runs(kMeetings);
  for (int meeting = 0; meeting < kMeetings; ++meeting)
    runs[static_cast<size_t>(meeting)] = std::vector<std::atomic<int>>(static_cast<size_t>(meeting % 9));
  const auto errors = in_threads(ranks, [&](int rank) {
    // Joined three at a time, as buckets are, and waited for in order.
    std::vector<std::shared_ptr<ReplicaRendezvous::Meeting>> joined;
    for (int i = 0; i < kMeetings; ++i) {
      auto& parts = runs[static_cast<size_t>(i)];
      joined.push_back(rendezvous.arrive(
          rank, arrival("meeting " + std::to_string(i)), [&](std::vector<ReplicaRendezvous::Arrival>&) {
            return ReplicaRendezvous::Work{static_cast<int>(parts.size()),
                                           [&parts](int part) { ++parts[static_cast<size_t>(part)]; }};
          }));
      if (joined.size() < 3) continue;
      for (auto& meeting : joined) rendezvous.wait(*meeting);
      joined.clear();
    }
    for (auto& meeting : joined) {
      rendezvous.wait(*meeting);
      EXPECT_TRUE(rendezvous.is_done(*meeting));
    }
  });
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  for (const auto& parts : runs) {
    for (const auto& count : parts) EXPECT_EQ(count, 1);
  }
  EXPECT_NO_THROW(rendezvous.check_complete());
}

INSTANTIATE_TEST_SUITE_P(Ranks, RendezvousOf, testing::Values(1, 2, 3, 4));

TEST(ReplicaRendezvous, ArrivingNeverWaitsForTheOthers) {
  ReplicaRendezvous rendezvous(2, kLong);
  // One thread plays both ranks, which is impossible if arriving waits.
  auto first = rendezvous.arrive(0, arrival("sum"), no_work);
  auto second = rendezvous.arrive(0, arrival("mean"), no_work);
  EXPECT_FALSE(rendezvous.is_done(*first));
  rendezvous.wait(*rendezvous.arrive(1, arrival("sum"), no_work));
  EXPECT_TRUE(rendezvous.is_done(*first));
  EXPECT_FALSE(rendezvous.is_done(*second));
  rendezvous.wait(*rendezvous.arrive(1, arrival("mean"), no_work));
  rendezvous.wait(*second);
}

TEST(ReplicaRendezvous, AWaitDoesThePartsOfEarlierMeetingsThatItsOwnDependsOn) {
  // As over workers, whose exchanges are done in order: the second meeting goes on once the first is done.
  const auto rendezvous = std::make_shared<ReplicaRendezvous>(2, kLong);
  std::promise<ReplicaRendezvous::Resume> second_resumes;
  auto second_is_begun = second_resumes.get_future().share();
  std::atomic<int> parts = 0;
  const auto first = [&](std::vector<ReplicaRendezvous::Arrival>&) {
    return ReplicaRendezvous::Work{4, [&](int) { ++parts; },
                                   [&](uint64_t, const ReplicaRendezvous::Resume& resume) {
                                     resume({}, nullptr);
                                     second_is_begun.get()({}, nullptr);
                                   }};
  };
  const auto second = [&](std::vector<ReplicaRendezvous::Arrival>&) {
    return ReplicaRendezvous::Work{0, nullptr, [&](uint64_t, const ReplicaRendezvous::Resume& resume) {
                                     second_resumes.set_value(resume);
                                   }};
  };
  rendezvous->arrive(0, arrival("first"), first);
  const auto meeting = rendezvous->arrive(0, arrival("second"), second);
  rendezvous->arrive(1, arrival("first"), first);  // does its share, half of the parts
  rendezvous->arrive(1, arrival("second"), second);
  EXPECT_EQ(parts, 2);
  auto waiting = std::async(std::launch::async, [&] { rendezvous->wait(*meeting); });
  const auto status = waiting.wait_for(std::chrono::seconds(20));
  EXPECT_EQ(status, std::future_status::ready);
  if (status != std::future_status::ready) second_is_begun.get()({}, nullptr);
  EXPECT_NO_THROW(waiting.get());
  EXPECT_EQ(parts, status == std::future_status::ready ? 4 : 2);
}

TEST(ReplicaRendezvous, NamesBothCallsAndTheirNumberWhereTheyDiffer) {
  ReplicaRendezvous rendezvous(3, kLong);
  const auto errors = in_threads(3, [&](int rank) {
    rendezvous.wait(*rendezvous.arrive(rank, arrival("warm-up"), no_work));
    rendezvous.wait(*rendezvous.arrive(
        rank, arrival(rank == 2 ? "broadcast Int[3]" : "all_reduce sum Float[2]"), no_work));
  });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<CollectiveMismatch>(error),
                AllOf(HasSubstr("collective #1"), HasSubstr("replica 2 called broadcast Int[3]"),
                      HasSubstr("called all_reduce sum Float[2]")));
  }
}

TEST(ReplicaRendezvous, WhatTheWorkThrowsReachesEveryRank) {
  for (const bool while_making : {true, false}) {
    ReplicaRendezvous rendezvous(3, kLong);
    const auto errors = in_threads(3, [&](int rank) {
      rendezvous.wait(*rendezvous.arrive(rank, arrival("sum"), [&](std::vector<ReplicaRendezvous::Arrival>&) {
        if (while_making) throw std::domain_error("planted");
        return ReplicaRendezvous::Work{20, [](int part) {
                                         if (part == 7) throw std::domain_error("planted");
                                       }};
      }));
    });
    for (const auto& error : errors) EXPECT_EQ(message_of<std::domain_error>(error), "planted");
  }
}

TEST(ReplicaRendezvous, AnErrorInOnePartIsThrownOnceTheOthersHaveEnded) {
  ReplicaRendezvous rendezvous(2, kLong);
  std::atomic<bool> other_runs{false};
  std::atomic<bool> other_ended{false};
  std::promise<void> failed;
  const auto make_work = [&](std::vector<ReplicaRendezvous::Arrival>&) {
    return ReplicaRendezvous::Work{2, [&](int part) {
                                     if (part == 0) {
                                       other_runs = true;
                                       failed.get_future().wait();
                                       // The failing rank has had time to fall asleep, so it must be woken.
                                       std::this_thread::sleep_for(kShort);
                                       other_ended = true;
                                     } else {
                                       while (!other_runs) std::this_thread::yield();
                                       failed.set_value();
                                       throw std::domain_error("planted");
                                     }
                                   }};
  };
  const auto errors = in_threads(2, [&](int rank) {
    auto meeting = rendezvous.arrive(rank, arrival("sum"), make_work);
    try {
      rendezvous.wait(*meeting);
    } catch (...) {
      EXPECT_TRUE(other_ended);
      throw;
    }
  });
  for (const auto& error : errors) EXPECT_EQ(message_of<std::domain_error>(error), "planted");
}

TEST(ReplicaRendezvous, NamesACollectiveThatSomeHaveJoinedAndOthersNot) {
  ReplicaRendezvous rendezvous(3, kLong);
  rendezvous.arrive(2, arrival("barrier"), no_work);
  try {
    rendezvous.check_complete();
    FAIL();
  } catch (const CollectiveMismatch& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("barrier"), HasSubstr("replica 2 called"),
                                    HasSubstr("replica 0, 1 returned without joining")));
  }
  rendezvous.reset();
  EXPECT_NO_THROW(rendezvous.check_complete());
}

}  // namespace
}  // namespace lockstep
