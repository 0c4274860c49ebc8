#include "lockstep/runtime/collectives/internal/collective_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

template <typename Error, typename Fn>
std::string text_of(const Fn& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(CollectiveOrder, CountsEachRanksCallsAndKnowsWhoIsMissing) {
  CollectiveOrder order(3);
  EXPECT_TRUE(order.is_complete());
  EXPECT_EQ(order.join(1, "a").sequence, 0U);
  EXPECT_EQ(order.join(1, "b").sequence, 1U);
  EXPECT_EQ(order.join(0, "a").sequence, 0U);
  EXPECT_EQ(order.missing(0), "2");
  EXPECT_EQ(order.missing(1), "0, 2");
  EXPECT_EQ(
      text_of<CollectiveMismatch>([&] { order.check_complete(); }),
      "replica 1 called a (collective #0), but replica 2 returned without joining it; all replicas must "
      "call the same collectives");
  order.join(2, "a");
  order.join(2, "b");
  order.join(0, "b");
  EXPECT_EQ(order.missing(0), "");
  EXPECT_TRUE(order.is_complete());
  EXPECT_NO_THROW(order.check_complete());
  EXPECT_EQ(order.join(2, "c").sequence, 2U);
}

TEST(CollectiveOrder, NamesBothCallsThatDiffer) {
  CollectiveOrder order(2);
  order.join(0, "a");
  EXPECT_EQ(text_of<CollectiveMismatch>([&] { order.join(1, "b"); }),
            "collective #0: replica 0 called a, but replica 1 called b; all replicas must call the same "
            "collectives in the same order with the same shapes");
}

TEST(CollectiveOrder, NamesWhoReturnedWithFewerCallsWhoeverIsFirst) {
  const std::string text =
      "replica 0 called b (collective #1), but replica 1 returned without joining it; all replicas must call "
      "the "
      "same collectives";
  for (const bool leaves_first : {true, false}) {
    CollectiveOrder order(2);
    order.join(0, "a");
    order.join(1, "a");
    if (leaves_first) {
      order.leave(1);
      EXPECT_EQ(text_of<CollectiveMismatch>([&] { order.join(0, "b"); }), text);
    } else {
      order.join(0, "b");
      EXPECT_EQ(text_of<CollectiveMismatch>([&] { order.leave(1); }), text);
    }
    order.reset();
    EXPECT_EQ(order.join(1, "c").sequence, 0U);
  }
}

TEST(CollectiveOrder, ReplicasThatLeftTakePartAgainInTheNextRun) {
  CollectiveOrder order(2);
  order.leave(1);
  order.enter();
  EXPECT_NO_THROW(order.join(0, "a"));
}

TEST(CollectiveOrder, AfterAnAbortAllCallsGetItsFirstReason) {
  CollectiveOrder order(2);
  order.join(0, "a");
  order.abort(std::make_exception_ptr(CollectiveAborted("first")));
  order.abort(std::make_exception_ptr(CollectiveAborted("second")));
  EXPECT_EQ(text_of<CollectiveAborted>([&] { order.join(1, "a"); }), "first");
  EXPECT_NO_THROW(order.leave(1)) << "the abort's cause is the error";
  order.reset();
  EXPECT_EQ(order.abort_error(), nullptr);
  EXPECT_NO_THROW(order.join(1, "a"));
}

TEST(CollectiveOrder, OneOfTwoThreadsSeesTheOtherOneLeave) {
  for (int round = 0; round < 200; ++round) {
    CollectiveOrder order(2);
    std::atomic<int> seen{0};
    std::thread waiting([&] {
      if (text_of<CollectiveMismatch>([&] { order.join(0, "a"); }) != "nothing") ++seen;
    });
    std::thread leaving([&] {
      if (text_of<CollectiveMismatch>([&] { order.leave(1); }) != "nothing") ++seen;
    });
    waiting.join();
    leaving.join();
    EXPECT_EQ(seen, 1);
  }
}

}  // namespace
}  // namespace lockstep
