#include "lockstep/apps/train_gpt/data/token_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const GeneratedText& twenty_texts() {
  static const GeneratedText texts({.count = 20, .sequence_length = 8, .seed = 5});
  return texts;
}

TEST(TokenDatasetTest, HasTheSequencesOfItsRange) {
  const TokenDataset dataset(twenty_texts(), {.begin = 12, .count = 5});
  EXPECT_EQ(dataset.size(), 5U);
  const auto expected = twenty_texts().get_batch({12, 16});
  const auto batch = dataset.get_batch({0, 4});
  EXPECT_TRUE(batch.data.equal(expected.data));
  EXPECT_TRUE(batch.target.equal(expected.target));
}

TEST(TokenDatasetTest, RefusesIndicesAndRangesBeyondIt) {
  EXPECT_THAT(
      [] { TokenDataset(twenty_texts(), {.begin = 12, .count = 9}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected a range of 20 sequences, but got 9 from 12 on")));
  const TokenDataset dataset(twenty_texts(), {.begin = 12, .count = 5});
  EXPECT_THAT([&] { dataset.get_batch({5}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected an index below 5, but got 5")));
}

TEST(TokenDatasetTest, OtherRangesHaveOtherIdentities) {
  EXPECT_NE(TokenDataset(twenty_texts(), {.count = 5}).identity(),
            TokenDataset(twenty_texts(), {.begin = 1, .count = 5}).identity());
}

}  // namespace
}  // namespace lockstep::apps
