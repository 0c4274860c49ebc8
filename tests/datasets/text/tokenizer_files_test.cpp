#include "lockstep/datasets/text/internal/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/byte_pair_tokenizer.h"
#include "lockstep/tests/datasets/text/small_tokenizers.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::byte_level_json;
using testing::character_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TemporaryFile;
using testing::TemporaryFolder;

BytePairTokenizer tokenizer_of(const json& file) {
  return BytePairTokenizer(TemporaryFile(file.dump(), "tokenizer.json").path());
}

/// Returns the message with which a file is refused, which begins with its name.
std::string refusal_of(const std::string& text) {
  const TemporaryFile file(text, "tokenizer.json");
  const std::string message = message_of<DataError>([&] { BytePairTokenizer tokenizer(file.path()); });
  EXPECT_THAT(message, StartsWith(file.path() + ": "));
  return message.substr(std::min(message.size(), file.path().size() + 2));
}

std::string refusal_of(const json& file) {
  return refusal_of(file.dump());
}

TEST(TokenizerFilesTest, RefusesDamagedFiles) {
  const std::string whole = byte_level_json().dump();
  EXPECT_THAT(refusal_of(std::string()), HasSubstr("an empty file"));
  for (const size_t size : {size_t{1}, whole.size() / 2, whole.size() - 1})
    EXPECT_THAT(refusal_of(whole.substr(0, size)), HasSubstr("expected JSON, but it is broken"));
  EXPECT_THAT(refusal_of(std::string("{\"model\": {}, \"model\": {}}")), HasSubstr("'model' twice"));
  EXPECT_THAT(refusal_of(std::string(100, '[')), HasSubstr("at most 32 levels"));
  EXPECT_THAT(refusal_of(std::string("[]")), HasSubstr("expected an object, but got a list"));
  EXPECT_THAT(refusal_of(byte_level_json()["model"]["vocab"]), HasSubstr("a vocabulary alone"));
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<DataError>([&] { BytePairTokenizer tokenizer(folder.file("none")); }),
              HasSubstr(folder.file("none")));
  EXPECT_THAT(message_of<DataError>([&] { BytePairTokenizer tokenizer(folder.path()); }),
              HasSubstr("folder"));
}

TEST(TokenizerFilesTest, RefusesLargeFilesBeforeReadingThem) {
  const TemporaryFile file("{}");
  std::filesystem::resize_file(file.path(), uint64_t{1} << 40);
  EXPECT_THAT(message_of<DataError>([&] { BytePairTokenizer tokenizer(file.path()); }),
              HasSubstr("expected at most 134217728 bytes, but got 1099511627776"));
}

TEST(TokenizerFilesTest, RefusesFilesThatTakeMemoryFarBeyondTheirSize) {
  // An empty list takes about 30 times as many bytes in memory as in the file.
  std::string lists = "[";
  for (int i = 0; i < 8'388'607; ++i) lists += "[],";
  EXPECT_THAT(refusal_of(lists + "[]]"), HasSubstr("JSON: expected at most 8388608 values, but got more"));

  json file = character_json();
  json& post_processor = file["post_processor"];
  post_processor["special_tokens"]["<s>"]["ids"] = json(30, 0);
  for (int i = 0; i < 30; ++i) post_processor["single"].push_back({{"SpecialToken", {{"id", "<s>"}}}});
  EXPECT_EQ(tokenizer_of(file).encode("").size(), 31 * 30);
  for (int i = 0; i < 5; ++i) post_processor["single"].push_back({{"SpecialToken", {{"id", "<s>"}}}});
  EXPECT_THAT(refusal_of(file),
              HasSubstr("post_processor: expected at most 1024 special tokens around a text, but got 1080"));
  post_processor["special_tokens"]["<s>"]["ids"] = json(1025, 0);
  EXPECT_THAT(refusal_of(file), HasSubstr("ids: expected at most 1024 ids, but got 1025"));
  post_processor["single"] = json(1025, json(post_processor["single"][0]));
  EXPECT_THAT(refusal_of(file),
              HasSubstr("single: expected at most 1024 special tokens and a sequence, but got 1025"));
}

TEST(TokenizerFilesTest, RefusesPipelinesOfTooManyParts) {
  const auto repeated = [](const json& part, int count) { return json(static_cast<size_t>(count), part); };
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const json nfc = {{"type", "NFC"}};
  json file = byte_level_json();
  const auto set_digits = [&](int count) {
    json parts = repeated(digits, count);
    parts.push_back(byte_level_json()["pre_tokenizer"]);
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", parts}};
  };
  set_digits(63);
  EXPECT_THAT(tokenizer_of(file).encode("hello 12"), ElementsAre(259, ' ', '1', '2'));
  set_digits(64);
  EXPECT_THAT(refusal_of(file),
              HasSubstr("pre_tokenizer.pretokenizers[64]: expected at most 64 parts in all, but got more"));
  set_digits(100'000);
  EXPECT_THAT(refusal_of(file), HasSubstr("expected at most 64 parts in all"));
  // Those of a Sequence within a Sequence count, too.
  file = byte_level_json();
  const json inner = {{"type", "Sequence"}, {"normalizers", repeated(nfc, 33)}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {inner, inner}}};
  EXPECT_THAT(refusal_of(file),
              HasSubstr("normalizers[1].normalizers[31]: expected at most 64 parts in all"));
  file = character_json();
  file["decoder"] = {{"type", "Sequence"}, {"decoders", repeated({{"type", "Fuse"}}, 65)}};
  EXPECT_THAT(refusal_of(file), HasSubstr("decoder.decoders[64]: expected at most 64 parts in all"));
}

TEST(TokenizerFilesTest, RefusesFilesThatContradictThemselves) {
  const auto refusal = [](const char* pointer, const json& value) {
    json file = byte_level_json();
    file[json::json_pointer(pointer)] = value;
    return refusal_of(file);
  };
  EXPECT_THAT(refusal("/model/vocab/he", 97), HasSubstr("expected an id that no other token has, but got"));
  EXPECT_THAT(refusal("/model/vocab/he", 1U << 22),
              HasSubstr("model.vocab.he: expected an integer from 0 to 4194303"));
  EXPECT_THAT(refusal("/model/vocab/he", -1), HasSubstr("but got -1"));
  EXPECT_THAT(refusal("/model/vocab/he", 1.5), HasSubstr("but got 1.5"));
  EXPECT_THAT(refusal("/model/vocab/he", "a"), HasSubstr("but got 'a'"));
  EXPECT_THAT(refusal("/model/merges/1", "h z"),
              HasSubstr("model.merges[1]: expected tokens of the vocabulary, but got 'hz'"));
  EXPECT_THAT(refusal("/model/merges/1", "nothing a"), HasSubstr("but got 'nothing'"));
  EXPECT_THAT(refusal("/model/merges/1", "ll"),
              HasSubstr("two tokens with a space between them, but got 'll'"));
  EXPECT_THAT(refusal("/model/merges/1", {"l", "l", "l"}), HasSubstr("expected two tokens, but got 3"));
  EXPECT_THAT(refusal("/model/merges", nullptr),
              HasSubstr("model.merges: expected a list of merges, but got nothing"));
  EXPECT_THAT(refusal("/added_tokens/0/id", 97),
              HasSubstr("added_tokens[0].id: expected an id that no other token has, but got 97"));
  EXPECT_THAT(refusal("/added_tokens/0/content", "he"),
              HasSubstr("expected the id that model.vocab has for 'he', 256, but got 261"));
  EXPECT_THAT(refusal("/added_tokens/0/content", ""), HasSubstr("not empty"));
  EXPECT_THAT(refusal("/added_tokens/1", testing::added_token("<|endoftext|>", 262)),
              HasSubstr("added_tokens[1].content"));
  EXPECT_THAT(refusal("/added_tokens/1", testing::added_token("<s>", 261)), HasSubstr("added_tokens[1].id"));
  EXPECT_THAT(refusal("/version", "2.0"), HasSubstr("version: expected 1.0, but got '2.0'"));

  json file = byte_level_json();
  file["model"]["vocab"].erase(testing::token_of_byte('\n', true));
  EXPECT_THAT(refusal_of(file),
              HasSubstr("expected a token for each of the 256 bytes, but got none for the byte 10"));
  file = character_json();
  file["post_processor"]["special_tokens"]["<s>"]["ids"] = {4000};
  EXPECT_THAT(refusal_of(file), HasSubstr("post_processor: expected ids of tokens, but got 4000"));
  file["post_processor"]["single"] = json::array();
  EXPECT_THAT(refusal_of(file), HasSubstr("expected the sequence A once, but got 0 sequences"));
}

TEST(TokenizerFilesTest, RefusesWhatIsNotSupported) {
  const auto refusal = [](const char* pointer, const json& value) {
    json file = byte_level_json();
    file[json::json_pointer(pointer)] = value;
    return refusal_of(file);
  };
  EXPECT_THAT(refusal("/model/type", "Unigram"), HasSubstr("model.type: expected BPE, but got 'Unigram'"));
  EXPECT_THAT(refusal("/model/dropout", 0.1), HasSubstr("model.dropout: expected null"));
  EXPECT_THAT(refusal("/model/end_of_word_suffix", "</w>"), HasSubstr("but got '</w>'"));
  EXPECT_THAT(refusal("/normalizer", {{"type", "Lowercase"}}), HasSubstr("normalizer.type: expected NFC"));
  EXPECT_THAT(refusal("/pre_tokenizer", nullptr),
              HasSubstr("pre_tokenizer: expected one that ends with ByteLevel"));
  EXPECT_THAT(refusal("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder.type: expected ByteLevel"));
  const json byte_level = byte_level_json()["pre_tokenizer"];
  EXPECT_THAT(
      refusal("/pre_tokenizer",
              {{"type", "Sequence"}, {"pretokenizers", {byte_level, {{"type", "Digits"}}}}}),
      HasSubstr("pre_tokenizer.pretokenizers[1].type: expected nothing after ByteLevel, but got 'Digits'"));
}

}  // namespace
}  // namespace lockstep
