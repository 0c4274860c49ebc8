#include "lockstep/apps/train_images/training/numbers_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NotFiniteError, NamesTheLearningRateThatWasGivenAndTheScaledOne) {
  TrainOptions options{.global_batch_size = 256, .learning_rate = 0.5};
  NotFinite::Place place{.epoch = 2, .step = 7, .replica = 1, .device = "cpu:3"};
  const auto message = [&] {
    return std::string(not_finite(place, options, make_plan(options, 2, 1000)).what());
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("epoch 2, step 7: "), HasSubstr("replica 1 (cpu:3)"),
                               HasSubstr("(--learning-rate 0.5);")));
  options.scale_learning_rate = true;
  EXPECT_THAT(message(), HasSubstr("(--learning-rate 0.5, scaled to 4);"));
  place.tensor = "parameter dense.weight";
  EXPECT_THAT(message(),
              HasSubstr("replica 1 has NaN or infinity in parameter dense.weight (--learning-rate"));
}

}  // namespace
}  // namespace lockstep::apps
