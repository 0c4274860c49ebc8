#include "lockstep/datasets/text/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<uint32_t>;

TEST(ByteTokenizerTest, EveryByteIsItsValue) {
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  Ids values(256);
  std::iota(values.begin(), values.end(), 0U);
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.encode(bytes), values);
  EXPECT_EQ(tokenizer.decode(values), bytes);
}

TEST(ByteTokenizerTest, TheEndOfTextIsReadUnlessItIsText) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocabulary_size(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256);
  EXPECT_THAT(tokenizer.special_tokens(), ElementsAre(SpecialToken{"<|endoftext|>", 256}));
  const std::string text = "a<|endoftext|><|endoftext|>b<|endoftext";
  const Ids ids = tokenizer.encode(text);
  EXPECT_EQ(ids.size(), 1 + 2 + 1 + std::string("<|endoftext").size());
  EXPECT_EQ(ids[1], 256);
  EXPECT_EQ(ids[2], 256);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.decode(ids, {.skips_special_tokens = true}), "ab<|endoftext");
  EXPECT_EQ(tokenizer.encode(text, {.reads_special_tokens = false}).size(), text.size());
}

TEST(ByteTokenizerTest, CanDoWithoutAnEndOfText) {
  const ByteTokenizer tokenizer({.end_of_text = ""});
  EXPECT_EQ(tokenizer.vocabulary_size(), 256);
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
  EXPECT_THROW(tokenizer.decode(Ids{256}), std::invalid_argument);
}

TEST(ByteTokenizerTest, AppendingManyTextsMovesTheIdsFewTimes) {
  const ByteTokenizer tokenizer;
  Ids ids;
  size_t num_moves = 0;
  for (int i = 0; i < 5000; ++i) {
    const size_t before = ids.capacity();
    tokenizer.encode_to(ids, "abc");
    num_moves += ids.capacity() == before ? 0 : 1;
  }
  EXPECT_EQ(ids.size(), 15'000);
  EXPECT_LT(num_moves, 30);  // a factor of at least 1.5 each time
}

TEST(ByteTokenizerTest, EncodesTextsOnSeveralThreadsAsOneByOne) {
  const ByteTokenizer tokenizer;
  const std::vector<std::string_view> texts = {"a", "", "bc", "<|endoftext|>"};
  for (const size_t num_threads : {0, 1, 2, 9})
    EXPECT_THAT(tokenizer.encode_batch(texts, {}, num_threads),
                ElementsAre(Ids{97}, Ids{}, Ids{98, 99}, Ids{256}));
  EXPECT_TRUE(tokenizer.encode_batch({}).empty());
}

}  // namespace
}  // namespace lockstep
