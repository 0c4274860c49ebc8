#include "lockstep/training/optimizers/scaling_rule.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ScaledLearningRate, GrowsLinearlyWithTheGlobalBatch) {
  EXPECT_DOUBLE_EQ(scaled_learning_rate(0.001, 256, 32), 0.008);
  EXPECT_DOUBLE_EQ(scaled_learning_rate(0.001, 32, 32), 0.001);
  EXPECT_DOUBLE_EQ(scaled_learning_rate(0.001, 16, 32), 0.0005);
}

}  // namespace
}  // namespace lockstep
