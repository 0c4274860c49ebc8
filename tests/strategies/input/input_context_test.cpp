#include "lockstep/strategies/input/input_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The placement of the last worker; the others have already contributed `others`.
InputPlacement last_after(const std::vector<int64_t>& others) {
  return {.gather = [others](int64_t here) {
    auto all = others;
    all.push_back(here);
    return all;
  }};
}

constexpr int64_t kAtItsEnd = -1;

TEST(InputContextBatchSize, IsTheGlobalOneOverTheReplicasOrAnError) {
  EXPECT_EQ((InputContext{.num_replicas_in_sync = 4}.get_per_replica_batch_size(12)), 3);
  for (const int64_t size : {10, 0, -4}) {
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { InputContext{.num_replicas_in_sync = 4}.get_per_replica_batch_size(size); }),
                HasSubstr("4 replicas divide, but got " + std::to_string(size)));
  }
}

TEST(ExamplesOfStep, AddUpOverTheWorkersThatHaveSome) {
  EXPECT_EQ(examples_of_step(last_after({5, kAtItsEnd}), 3, false), 8);
  EXPECT_EQ(examples_of_step(last_after({5, 0}), std::nullopt, false), 5);
  EXPECT_EQ(examples_of_step(last_after({kAtItsEnd, kAtItsEnd}), 0, false), 0)
      << "a batch of nothing is a step too";
  EXPECT_EQ(examples_of_step(last_after({kAtItsEnd, kAtItsEnd}), std::nullopt, false), std::nullopt);
}

TEST(ExamplesOfStep, OfTheWholeBatchAreTheSameOnAllWorkersOrAnError) {
  EXPECT_EQ(examples_of_step(last_after({5, 5}), 5, true), 5);
  EXPECT_EQ(examples_of_step(last_after({kAtItsEnd, kAtItsEnd}), std::nullopt, true), std::nullopt);
  // Each worker sees that two others differ, whatever its own number is.
  EXPECT_THAT(message_of<ClusterError>([] {
                examples_of_step(last_after({4, 6}), 5, true);
              }),
              AllOf(HasSubstr("worker 0's gave 4 examples"), HasSubstr("worker 1's gave 6 examples")));
  EXPECT_THAT(message_of<ClusterError>([] {
                examples_of_step(last_after({5, kAtItsEnd}), 5, true);
              }),
              AllOf(HasSubstr("worker 0's gave 5 examples"), HasSubstr("worker 1's has ended")));
  EXPECT_THAT(message_of<ClusterError>([] { examples_of_step(last_after({kAtItsEnd}), 2, true); }),
              AllOf(HasSubstr("worker 0's has ended"), HasSubstr("worker 1's gave 2 examples")));
}

}  // namespace
}  // namespace lockstep
