// Ends of a wait at the rendezvous without the other ranks: an abort, a rank that leaves, a timeout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/replica_rendezvous.h"
#include "lockstep/tests/runtime/collectives/rendezvous_arrivals.h"
#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ReplicaRendezvous, AbortReleasesThoseWhoWaitAndRefusesThoseWhoArriveUntilReset) {
  ReplicaRendezvous rendezvous(3, kLong);
  const auto errors = in_threads(3, [&](int rank) {
    if (rank == 2) {
      rendezvous.abort("replica 2 failed: planted");
      return;
    }
    rendezvous.wait(*rendezvous.arrive(rank, arrival("sum"), no_work));
  });
  EXPECT_EQ(message_of<CollectiveAborted>(errors[0]), "replica 2 failed: planted");
  EXPECT_EQ(message_of<CollectiveAborted>(errors[1]), "replica 2 failed: planted");
  EXPECT_THROW(rendezvous.arrive(0, arrival("sum"), no_work), CollectiveAborted);
  rendezvous.reset();
  for (const auto& error :
       in_threads(3, [&](int rank) { rendezvous.wait(*rendezvous.arrive(rank, arrival("sum"), no_work)); })) {
    EXPECT_EQ(message_of<std::exception>(error), "no error");
  }
}

TEST(ReplicaRendezvous, TheFirstOfTwoAbortsGivesTheReason) {
  ReplicaRendezvous rendezvous(2, kLong);
  rendezvous.abort("cause");
  rendezvous.abort("consequence");
  try {
    rendezvous.arrive(0, arrival("sum"), no_work);
    FAIL();
  } catch (const CollectiveAborted& error) {
    EXPECT_STREQ(error.what(), "cause");
  }
}

TEST(ReplicaRendezvous, AMeetingThatAllHaveJoinedIsFinishedAfterAnAbort) {
  ReplicaRendezvous rendezvous(2, kLong);
  int parts = 0;
  const auto make_work = [&](std::vector<ReplicaRendezvous::Arrival>&) {
    return ReplicaRendezvous::Work{8, [&](int) { ++parts; }};
  };
  auto meeting = rendezvous.arrive(0, arrival("sum"), make_work);
  rendezvous.arrive(1, arrival("sum"), make_work);
  rendezvous.abort("planted");
  rendezvous.wait(*meeting);
  EXPECT_EQ(parts, 8);
}

TEST(ReplicaRendezvous, LeavingReleasesThoseWhoWaitAndThoseWhoArriveLater) {
  ReplicaRendezvous rendezvous(2, kLong);
  auto waiting = rendezvous.arrive(0, arrival("all_reduce sum"), no_work);
  rendezvous.leave(1);
  auto later = rendezvous.arrive(0, arrival("broadcast"), no_work);
  for (auto& [meeting, name] : {std::pair{waiting, "all_reduce sum"}, std::pair{later, "broadcast"}}) {
    try {
      rendezvous.wait(*meeting);
      FAIL();
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("replica 0 called"),
                                      HasSubstr("replica 1 returned without joining")));
    }
  }
}

TEST(ReplicaRendezvous, LeavingDoesNotTouchMeetingsThatTheRankHasJoined) {
  ReplicaRendezvous rendezvous(2, kLong);
  rendezvous.arrive(1, arrival("sum"), no_work);
  rendezvous.leave(1);
  EXPECT_NO_THROW(rendezvous.wait(*rendezvous.arrive(0, arrival("sum"), no_work)));
  rendezvous.leave(0);
  rendezvous.enter();
  for (int rank : {0, 1}) rendezvous.arrive(rank, arrival("mean"), no_work);
  EXPECT_NO_THROW(rendezvous.check_complete());
}

TEST(ReplicaRendezvous, ATimeoutNamesTheMissingRanksAndReleasesEveryone) {
  ReplicaRendezvous rendezvous(4, kLong);
  auto own = rendezvous.arrive(0, arrival("sum Float[5]"), no_work);
  auto others = rendezvous.arrive(2, arrival("sum Float[5]"), no_work);
  auto other = std::async(std::launch::async, [&] { rendezvous.wait(*others); });
  try {
    rendezvous.wait(*own, kShort);
    FAIL();
  } catch (const CollectiveAborted& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("sum Float[5]"), HasSubstr("timed out"), HasSubstr("missing: replica 1, 3")));
  }
  EXPECT_THROW(other.get(), CollectiveAborted);
  EXPECT_THROW(rendezvous.arrive(1, arrival("sum Float[5]"), no_work), CollectiveAborted);
}

TEST(ReplicaRendezvous, NumbersItsRanksFromItsFirstReplicaOn) {
  ReplicaRendezvous rendezvous(3, kShort, /*first_replica=*/5);
  const auto waiting = rendezvous.arrive(1, arrival("sum"), no_work);
  EXPECT_EQ(
      message_of<CollectiveMismatch>(in_threads(1, [&](int) { rendezvous.check_complete(); })[0]),
      "replica 6 called sum (collective #0), but replica 5, 7 returned without joining it; all replicas must "
      "call the same collectives");
  EXPECT_THAT(message_of<CollectiveAborted>(in_threads(1, [&](int) { rendezvous.wait(*waiting); })[0]),
              HasSubstr("missing: replica 5, 7"));
}

TEST(ReplicaRendezvous, TheOwnTimeoutHoldsWhereNoneIsGiven) {
  ReplicaRendezvous rendezvous(2, kShort);
  EXPECT_THROW(rendezvous.wait(*rendezvous.arrive(0, arrival("sum"), no_work)), CollectiveAborted);
}

TEST(ReplicaRendezvous, TheLongestTimeoutThereIsDoesNotOverflow) {
  ReplicaRendezvous rendezvous(2, std::chrono::milliseconds::max());
  auto waiting = std::async(std::launch::async,
                            [&] { rendezvous.wait(*rendezvous.arrive(0, arrival("sum"), no_work)); });
  EXPECT_EQ(waiting.wait_for(kShort), std::future_status::timeout);
  rendezvous.arrive(1, arrival("sum"), no_work);
  EXPECT_NO_THROW(waiting.get());
}

}  // namespace
}  // namespace lockstep
