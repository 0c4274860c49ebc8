#include "lockstep/datasets/tokens/generated_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>
#include <vector>

#include "lockstep/datasets/tensors/collated_dataset.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

static_assert(CollatedDataset<GeneratedText>);

TEST(GeneratedText, TheBatchHasItsSequencesAndTheTokensAfterEach) {
  const GeneratedText text({.count = 10, .sequence_length = 20, .seed = 3});
  EXPECT_EQ(text.size(), 10U);
  const auto batch = text.get_batch({4, 9});
  EXPECT_EQ(batch.data.scalar_type(), torch::kLong);
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<uint32_t> tokens(21);
    GeneratedLanguage().draw({.seed = 3, .index = row == 0 ? 4U : 9U}, tokens);
    const auto expected = torch::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()));
    EXPECT_TRUE(batch.data[row].equal(expected.narrow(0, 0, 20)));
    EXPECT_TRUE(batch.target[row].equal(expected.narrow(0, 1, 20)));
  }
  EXPECT_EQ(text.get_batch({}).target.sizes(), (std::vector<int64_t>{0, 20}));
  EXPECT_THROW(text.get_batch({10}), std::invalid_argument);
  EXPECT_EQ(text.entropy(), GeneratedLanguage().entropy(20));
}

TEST(GeneratedText, HasTheIdentityOfItsTexts) {
  const auto identity = [](const GeneratedTextOptions& options) { return GeneratedText(options).identity(); };
  EXPECT_THAT(identity({}), HasSubstr("generated text of seed 0 in sequences of 256 (checksum "));
  EXPECT_EQ(identity({.count = 5}), identity({}));
  EXPECT_NE(identity({.seed = 1}), identity({}));
  EXPECT_NE(identity({.sequence_length = 255}), identity({}));
  EXPECT_NE(identity({.language = {.nesting = 0.4}}), identity({}));
}

TEST(GeneratedText, RefusesOptionsOutOfRange) {
  EXPECT_THROW(GeneratedText({.count = -1}), std::invalid_argument);
  EXPECT_THROW(GeneratedText({.sequence_length = 0}), std::invalid_argument);
  EXPECT_THROW(GeneratedText({.language = {.num_classes = 7}}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
