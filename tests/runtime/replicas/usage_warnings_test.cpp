#include "lockstep/runtime/replicas/internal/usage_warnings.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/kept_warnings.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UsageWarnings, WarnsOfEachMistakeOnce) {
  KeptWarnings kept;
  UsageWarnings warnings("MirroredStrategy", environment_of({}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(warnings.wants(UsageMistake::kMeanLoss), i == 0);
    warnings.warn(UsageMistake::kMeanLoss, "a mean: sum.");
    warnings.warn(UsageMistake::kSameOrder, "an order: shuffle.");
  }
  EXPECT_TRUE(warnings.wants(UsageMistake::kNoGradients));
  EXPECT_THAT(
      kept.messages,
      ElementsAre("[MirroredStrategy] a mean: sum. (LOCKSTEP_WARNINGS=off silences these warnings.)",
                  "[MirroredStrategy] an order: shuffle. (LOCKSTEP_WARNINGS=off silences these warnings.)"));
}

TEST(UsageWarnings, TheEnvironmentSilencesThem) {
  KeptWarnings kept;
  UsageWarnings warnings("MirroredStrategy", environment_of({{"LOCKSTEP_WARNINGS", "off"}}));
  EXPECT_FALSE(warnings.wants(UsageMistake::kMeanLoss));
  warnings.warn(UsageMistake::kMeanLoss, "a mean: sum.");
  EXPECT_THAT(kept.messages, IsEmpty());
}

TEST(UsageWarnings, RefusesAnotherValueByItsName) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              UsageWarnings("MirroredStrategy", environment_of({{"LOCKSTEP_WARNINGS", "0"}}));
            }),
            "[MirroredStrategy] expected LOCKSTEP_WARNINGS to be 'on' or 'off', but got '0'");
}

}  // namespace
}  // namespace lockstep
