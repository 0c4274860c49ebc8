#include "lockstep/runtime/replicas/internal/usage_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(UsageWarnings, WarnsOfEachMistakeOnce) {
  UsageWarnings warnings("MirroredStrategy", environment_of({}));
  const auto warn = [&](UsageMistake mistake) {
    ::testing::internal::CaptureStderr();
    warnings.warn(mistake, "this is wrong: do that.");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_TRUE(warnings.wants(UsageMistake::kMeanLoss));
  EXPECT_THAT(warn(UsageMistake::kMeanLoss),
              HasSubstr("[MirroredStrategy] this is wrong: do that. (LOCKSTEP_WARNINGS=off silences these "
                        "warnings.)"));
  EXPECT_FALSE(warnings.wants(UsageMistake::kMeanLoss));
  EXPECT_THAT(warn(UsageMistake::kMeanLoss), IsEmpty());
  EXPECT_THAT(warn(UsageMistake::kSameOrder), HasSubstr("this is wrong")) << "another mistake";
}

TEST(UsageWarnings, TheEnvironmentSilencesThem) {
  UsageWarnings warnings("MirroredStrategy", environment_of({{"LOCKSTEP_WARNINGS", "off"}}));
  EXPECT_FALSE(warnings.wants(UsageMistake::kMeanLoss));
  ::testing::internal::CaptureStderr();
  warnings.warn(UsageMistake::kMeanLoss, "this is wrong: do that.");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST(UsageWarnings, RefusesAnotherValueByItsName) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              UsageWarnings("MirroredStrategy", environment_of({{"LOCKSTEP_WARNINGS", "0"}}));
            }),
            "[MirroredStrategy] expected LOCKSTEP_WARNINGS to be 'on' or 'off', but got '0'");
}

}  // namespace
}  // namespace lockstep
