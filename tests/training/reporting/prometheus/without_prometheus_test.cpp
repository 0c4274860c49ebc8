#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"

namespace lockstep {
namespace {

// This program is linked with the source for builds without prometheus-cpp.

TEST(WithoutPrometheus, MetricsAreRefusedWithTheReason) {
  EXPECT_FALSE(TrainingMetrics::is_available());
  EXPECT_THAT(message_of<InvalidArgument>([] { TrainingMetrics metrics; }),
              ::testing::HasSubstr("install Debian's prometheus-cpp-dev and build Lockstep again"));
}

}  // namespace
}  // namespace lockstep
