#include "lockstep/models/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

TEST(BatchNormTest, TellsWhatTakesBatchesThatAreNoImages) {
  BatchNorm norm(3);
  EXPECT_THAT(
      [&] {
        norm->forward(torch::ones({2, 3, 5}));
      },
      ::testing::ThrowsMessage<std::invalid_argument>(
          ::testing::AllOf(::testing::HasSubstr("(N, C, H, W), but got 3 dimensions"),
                           ::testing::HasSubstr("BatchNorm1d"), ::testing::HasSubstr("SyncBatchNorm"))));
}

}  // namespace
}  // namespace lockstep
