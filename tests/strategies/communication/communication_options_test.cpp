#include "lockstep/strategies/communication/communication_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

TEST(CommunicationOptions, TakesOfAnOverrideOnlyWhatIsNotItsDefault) {
  const CommunicationOptions own{.bytes_per_pack = 100, .timeout = seconds(5)};
  EXPECT_EQ(own.merge({}), own);
  const CommunicationOptions merged =
      own.merge({.bytes_per_pack = 7, .implementation = CommunicationImplementation::kRing});
  EXPECT_EQ(merged, (CommunicationOptions{7, seconds(5), CommunicationImplementation::kRing}));
  EXPECT_EQ(CommunicationOptions().merge(own), own);
}

TEST(CommunicationOptions, RefusesNegativeBytesAndTimeoutsThatAreNotPositive) {
  EXPECT_THAT(message_of<InvalidArgument>([] { CommunicationOptions{.bytes_per_pack = -1}.check(); }),
              HasSubstr("but got -1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { CommunicationOptions{.timeout = seconds(0)}.check(); }),
              HasSubstr("but got 0 ms"));
  CommunicationOptions{.bytes_per_pack = 1, .timeout = seconds(1)}.check();
}

TEST(CommunicationOptions, HasNamesForImplementations) {
  for (const char* name : {"auto", "ring", "nccl"})
    EXPECT_EQ(communication_name(parse_communication(name)), name);
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_communication("gloo"); }),
              HasSubstr("expected auto, ring or nccl, but got 'gloo'"));
}

}  // namespace
}  // namespace lockstep
