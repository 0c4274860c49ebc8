#include "lockstep/datasets/text/byte_pair_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/open_tokenizer.h"
#include "lockstep/tests/datasets/text/small_tokenizers.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::byte_level_json;
using testing::character_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFile;
using testing::TemporaryFolder;
using Ids = std::vector<uint32_t>;

BytePairTokenizer tokenizer_of(const json& file) {
  return BytePairTokenizer(TemporaryFile(file.dump(), "tokenizer.json").path());
}

/// Random text of which every kind of byte is a part: valid UTF-8, broken, spaces and special tokens.
std::string random_bytes(uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<std::string> parts = {"hello",        " hello",
                                          "he",           "\xC3\xA9",
                                          "\xE6\x96\x87", "\xF0\x9F\x98\x80",
                                          "\xF0\x9F",     "<|endoftext|>",
                                          "<|endo",       "\n",
                                          "  ",           "'s",
                                          "12",           "!"};
  std::string text;
  for (int i = 0; i < 60; ++i) {
    if (random() % 3 == 0) {
      text += static_cast<char>(random());
    } else {
      text += parts[random() % parts.size()];
    }
  }
  return text;
}

TEST(BytePairTokenizerTest, MergesInTheOrderOfTheFile) {
  const auto tokenizer = tokenizer_of(byte_level_json());
  EXPECT_THAT(tokenizer.encode("hello hello hell"), ElementsAre(259, 260, ' ', 258));
  EXPECT_THAT(tokenizer.encode("ello"), ElementsAre('e', 257, 'o'));
  EXPECT_EQ(tokenizer.vocabulary_size(), 262);
  EXPECT_EQ(tokenizer.end_of_text(), 261);
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(BytePairTokenizerTest, DecodingGivesBackAllBytesOfByteLevelText) {
  const auto tokenizer = tokenizer_of(byte_level_json());
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_bytes(seed);
    for (const bool reads : {true, false})
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {.reads_special_tokens = reads})), text);
  }
}

TEST(BytePairTokenizerTest, DecodingGivesBackAllBytesOfTextInCharacters) {
  const auto tokenizer = tokenizer_of(character_json());
  for (uint64_t seed = 0; seed < 300; ++seed) {
    // Spaces before a text are lost if the text does not begin with it.
    const std::string text = "x" + random_bytes(seed);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {.adds_special_tokens = false})), text);
  }
}

TEST(BytePairTokenizerTest, BrokenBytesSplitTheTextAndGetNoSpace) {
  const auto bytes = tokenizer_of(byte_level_json());
  EXPECT_THAT(bytes.encode("he\xFFhello\xF0\x9F hello"), ElementsAre(256, 0xFF, 259, 0xF0, 0x9F, 260));
  const auto characters = tokenizer_of(character_json());
  const uint32_t begin = characters.special_token("<s>").value();
  const Ids hi = characters.encode("hi", {.adds_special_tokens = false});
  ASSERT_EQ(hi.size(), 1);
  const Ids broken = characters.encode("hi\xFFhi");
  ASSERT_EQ(broken.size(), 4);
  EXPECT_THAT(broken, ElementsAre(begin, hi[0], 0xFF, broken[3]));
  EXPECT_EQ(characters.decode(Ids{broken[3]}), "hi");
  EXPECT_NE(broken[3], hi[0]);
}

TEST(BytePairTokenizerTest, MergesTheBytesOfAMarkThatIsNoToken) {
  json file = character_json();
  file["normalizer"] = nullptr;
  file["post_processor"] = nullptr;
  file["added_tokens"] = json::array();
  file["model"]["vocab"] = testing::byte_vocabulary(false);
  file["model"]["merges"] = json::array();
  testing::add_merges(file["model"], {{"h", "<0xE2>"}});
  EXPECT_THAT(tokenizer_of(file).encode("h\xE2\x96\x81h"), ElementsAre(257, 0x96, 0x81, 256));
}

TEST(BytePairTokenizerTest, SpecialTokensAreReadAddedAndSkippedAsAsked) {
  const auto tokenizer = tokenizer_of(character_json());
  const uint32_t begin = tokenizer.special_token("<s>").value();
  EXPECT_EQ(tokenizer.encode("").front(), begin);
  EXPECT_TRUE(tokenizer.encode("", {.adds_special_tokens = false}).empty());
  EXPECT_THAT(tokenizer.encode("<s>", {.adds_special_tokens = false}), ElementsAre(begin));
  EXPECT_GT(tokenizer.encode("<s>", {.adds_special_tokens = false, .reads_special_tokens = false}).size(), 1);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hi")), "<s> hi");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hi"), {.skips_special_tokens = true}), "hi");
  EXPECT_EQ(tokenizer.special_token("<pad>"), std::nullopt);
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
}

TEST(BytePairTokenizerTest, EncodesTheSameFromAllThreads) {
  const auto tokenizer = tokenizer_of(byte_level_json());
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed < 200; ++seed) texts.push_back(random_bytes(seed));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto together = tokenizer.encode_batch(views, {}, 8);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(together[i], tokenizer.encode(texts[i]));
}

TEST(BytePairTokenizerTest, AnExceptionOfOneTextReachesTheCallerOfABatch) {
  json file = byte_level_json();
  // Each way to read the letters as ones and twos is tried.
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", "(?:a|aa)+b"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto tokenizer = tokenizer_of(file);
  const std::string long_text = std::string(100, 'a') + " b";
  const std::vector<std::string_view> texts = {"ab", long_text, "aab"};
  EXPECT_THAT(message_of<DataError>([&] { tokenizer.encode_batch(texts, {}, 2); }),
              AllOf(HasSubstr("(?:a|aa)+b"), HasSubstr("limit")));
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre('a', 'b'));
}

TEST(BytePairTokenizerTest, IdsWithoutATokenAreRefusedWhenDecoding) {
  json file = byte_level_json();
  file["added_tokens"][0]["id"] = 300;  // 261 to 299 are no tokens
  const auto tokenizer = tokenizer_of(file);
  EXPECT_EQ(tokenizer.vocabulary_size(), 301);
  for (const uint32_t id : {261U, 299U, 301U, 0xFFFFFFFFU})
    EXPECT_THAT(message_of<std::invalid_argument>([&] { tokenizer.decode(Ids{id}); }),
                HasSubstr("but got " + std::to_string(id)));
}

TEST(BytePairTokenizerTest, RefusesToMakeATextManyTimesLonger) {
  const auto twice = [](const std::string& text) {
    return json{{"type", "Replace"}, {"pattern", {{"String", text}}}, {"content", text + text}};
  };
  json file = character_json();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(40, twice("a"))}};
  EXPECT_THAT(message_of<DataError>([&] { tokenizer_of(file).encode("a"); }),
              HasSubstr("the tokenizer's file makes a text of 1 bytes longer than"));
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(5, twice("a"))}};
  EXPECT_EQ(tokenizer_of(file).encode(std::string(1000, 'a'), {.adds_special_tokens = false}).size(), 32'000);
  file["normalizer"] = nullptr;
  file["decoder"] = {{"type", "Sequence"}, {"decoders", json(40, twice("x"))}};
  EXPECT_THAT(message_of<DataError>([&] { tokenizer_of(file).decode(Ids{'a'}); }),  // the token <0x61>
              HasSubstr("longer than"));
}

/// Returns the memory of this process, in MiB.
size_t resident_mebibytes() {
  std::ifstream status("/proc/self/statm");
  size_t num_pages = 0;
  status >> num_pages >> num_pages;  // the second number
  return num_pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) >> 20;
}

TEST(BytePairTokenizerTest, GivesBackTheMemoryOfALongWord) {
  if (kHasSanitizer) GTEST_SKIP() << "a sanitizer keeps memory that is given back";
  const auto tokenizer = tokenizer_of(byte_level_json());
  const std::string word(size_t{8} << 20, 'q');
  const size_t before = resident_mebibytes();
  EXPECT_EQ(tokenizer.encode(word).size(), word.size());
  EXPECT_LT(resident_mebibytes(), before + 32);  // while it is encoded, more than 200
}

TEST(BytePairTokenizerTest, ReadsThePairOfFilesOfOlderTokenizers) {
  const json model = byte_level_json()["model"];
  std::string merges = "#version: 0.2\n";
  for (const json& merge : model["merges"]) merges += merge.get<std::string>() + "\n";
  const TemporaryFolder folder;
  const BytePairFiles files = {.vocabulary = folder.write("encoder.json", model["vocab"].dump()),
                               .merges = folder.write("vocab.bpe", merges)};
  const BytePairTokenizer tokenizer(files);
  EXPECT_THAT(tokenizer.encode("hello hello"), ElementsAre(259, 260));
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
  EXPECT_EQ(open_tokenizer(folder.path())->encode(" hello"), tokenizer.encode(" hello"));
  EXPECT_EQ(open_tokenizer(files.merges)->encode(" hello"), tokenizer.encode(" hello"));

  const auto refusal = [&](const BytePairFiles& wrong) {
    return message_of<DataError>([&] { BytePairTokenizer refused(wrong); });
  };
  folder.write("vocab.bpe", "#version: 0.2\nh e\nh z\n");
  EXPECT_EQ(refusal(files), files.merges + ": line 3: expected tokens of the vocabulary, but got 'hz'");
  folder.write("vocab.bpe", "");
  EXPECT_THAT(refusal(files), HasSubstr("an empty file"));
  folder.write("vocab.bpe", "\xFF e\n");
  EXPECT_THAT(refusal(files), HasSubstr("line 1: expected UTF-8"));
  folder.write("encoder.json", byte_level_json().dump());
  EXPECT_THAT(refusal(files), HasSubstr("a whole tokenizer.json"));
}

TEST(OpenTokenizerTest, OpensWhatANameStandsFor) {
  EXPECT_EQ(open_tokenizer("bytes")->vocabulary_size(), 257);
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<DataError>([&] { open_tokenizer(folder.path()); }),
              AllOf(HasSubstr(folder.path()), HasSubstr("merges.txt")));
  const std::string path = folder.write("tokenizer.json", byte_level_json().dump());
  EXPECT_EQ(open_tokenizer(path)->vocabulary_size(), 262);
  EXPECT_EQ(open_tokenizer(folder.path())->vocabulary_size(), 262);
  EXPECT_THAT(message_of<DataError>([&] { open_tokenizer(folder.file("other.json")); }),
              HasSubstr(folder.file("other.json")));
}

}  // namespace
}  // namespace lockstep
