#include "lockstep/apps/train_mnist/epoch_report.h"

#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

TEST(EpochLine, RoundsToFourPlacesAndWholeImages) {
  EXPECT_EQ(epoch_line({.epoch = 1,
                        .epochs = 5,
                        .loss = 0.12344,
                        .accuracy = 0.96125,
                        .test_accuracy = 0.9745,
                        .images_per_second = 411.6}),
            "epoch 1/5  loss 0.1234  accuracy 0.9613  test accuracy 0.9745  412 images/s");
}

}  // namespace
}  // namespace lockstep::apps
