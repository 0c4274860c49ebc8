#include "lockstep/apps/train_gpt/data/text_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/datasets/text/byte_tokenizer.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(TextCodecTest, TurnsTextIntoTheTokensOfTheTokenizerAndBack) {
  const TextCodec codec(std::make_shared<const ByteTokenizer>());
  EXPECT_THAT(codec.tokens("Hi"), ElementsAre(72, 105));
  EXPECT_EQ(codec.text(std::vector<int64_t>{72, 105}), "Hi");
  EXPECT_EQ(codec.end_of_text(), 256);
}

TEST(TextCodecTest, BeginsADocumentWithoutText) {
  EXPECT_THAT(TextCodec(std::make_shared<const ByteTokenizer>()).tokens(""), ElementsAre(256));
  const auto without_end = std::make_shared<const ByteTokenizer>(ByteTokenizerOptions{.end_of_text = ""});
  EXPECT_THAT(TextCodec(without_end).tokens(""), ElementsAre('\n'));
  EXPECT_THAT(TextCodec().tokens(""), ElementsAre(0));
}

TEST(TextCodecTest, ShowsIdsThatTheTokenizerDoesNotHave) {
  const TextCodec codec(std::make_shared<const ByteTokenizer>());
  EXPECT_EQ(codec.text(std::vector<int64_t>{72, 300, 105}), "H<300>i");
}

TEST(TextCodecTest, TakesNumbersWithoutATokenizer) {
  const TextCodec codec;
  EXPECT_THAT(codec.tokens("17 4"), ElementsAre(17, 4));
  EXPECT_EQ(codec.text(std::vector<int64_t>{17, 4}), "17 4");
  EXPECT_EQ(codec.end_of_text(), std::nullopt);
  EXPECT_THAT(
      [&] { codec.tokens("17 hello"); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("--sample: expected ids of tokens"), HasSubstr("'hello'"))));
}

TEST(TextCodecTest, TakesTheWordsOfTheGeneratedLanguage) {
  const GeneratedLanguage language;
  std::vector<uint32_t> drawn(9);
  language.draw({.seed = 3, .index = 1}, drawn);
  const std::vector<uint32_t> words(drawn.begin() + 1, drawn.end());
  const TextCodec codec(language);
  // A text begins with what separates documents.
  EXPECT_EQ(codec.tokens(language.text(words)), std::vector<int64_t>(drawn.begin(), drawn.end()));
  EXPECT_EQ(codec.text(std::vector<int64_t>(words.begin(), words.end())), language.text(words));
  EXPECT_THAT([&] { codec.tokens("the monk flies"); },
              ThrowsMessage<UsageError>(HasSubstr("--sample: expected words of the generated language")));
}

}  // namespace
}  // namespace lockstep::apps
