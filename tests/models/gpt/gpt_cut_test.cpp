// Sizes of a Gpt that the ranks along an axis can divide.
#include "lockstep/models/gpt/gpt_cut.h"

#include <gtest/gtest.h>

#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep {
namespace {

using Sizes = std::vector<int64_t>;

void expect_uncut(const GptOptions& options, int64_t ranks, const std::string& option, const Sizes& sizes) {
  const auto uncut = uncut_gpt_size(options, ranks);
  ASSERT_TRUE(uncut) << option;
  EXPECT_EQ(uncut->option, option);
  EXPECT_EQ(uncut->would_do, sizes);
}

TEST(GptCutTest, SizesThatAllRanksDivideAreFine) {
  for (const int64_t ranks : {1, 2, 4, 8}) EXPECT_FALSE(uncut_gpt_size(gpt_preset("llama-3.1-8b"), ranks));
  EXPECT_FALSE(uncut_gpt_size(gpt_preset("gpt2"), 1));
}

TEST(GptCutTest, HeadsThatWouldDoAlsoDivideTheWidth) {
  const GptOptions options{.vocabulary_size = 64, .num_heads = 9, .width = 576};
  expect_uncut(options, 2, "num_heads", {8, 12});
  EXPECT_EQ(uncut_gpt_size(options, 2)->given, 9);
  EXPECT_EQ(would_do_text(*uncut_gpt_size(options, 2)), "8 or 12 would do");
  expect_uncut(options, 16, "num_heads", {16});
}

TEST(GptCutTest, HeadsOfTheirOwnWidthNeedNotDivideTheModels) {
  expect_uncut({.vocabulary_size = 64, .num_heads = 5, .width = 36, .head_width = 16}, 4, "num_heads",
               {4, 8});
}

TEST(GptCutTest, HeadsOfKeysThatWouldDoDivideTheQueries) {
  const GptOptions options{.vocabulary_size = 64, .num_heads = 12, .num_key_value_heads = 2, .width = 48};
  EXPECT_FALSE(uncut_gpt_size(options, 2));
  expect_uncut(options, 4, "num_key_value_heads", {4});
  expect_uncut({.vocabulary_size = 64, .num_heads = 12, .num_key_value_heads = 3, .width = 48}, 2,
               "num_key_value_heads", {2, 4});
}

TEST(GptCutTest, HiddenWidthsAndVocabulariesAreMultiplesOfTheRanks) {
  expect_uncut({.vocabulary_size = 63, .num_heads = 4, .width = 16, .hidden_width = 21}, 4, "hidden_width",
               {20, 24});
  expect_uncut({.vocabulary_size = 63, .num_heads = 4, .width = 16}, 4, "vocabulary_size", {64});
  expect_uncut(gpt_preset("gpt2"), 2, "vocabulary_size", {50258});
}

}  // namespace
}  // namespace lockstep
