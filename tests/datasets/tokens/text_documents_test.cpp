#include "lockstep/datasets/tokens/internal/text_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/internal/pattern.h"
#include "lockstep/tests/datasets/files/compressed_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

/// The pieces, and whether each ends a document.
using Pieces = std::vector<std::pair<std::string, bool>>;

Pieces pieces_of(const TextDocuments& documents) {
  Pieces pieces;
  read_documents(documents,
                 [&](const TextPiece& piece) { pieces.emplace_back(piece.text, piece.ends_document); });
  return pieces;
}

class TextDocumentsTest : public ::testing::Test {
 protected:
  void expect_refused(const std::string& name, const std::string& text, const std::string& message) const {
    const std::string path = folder_.write(name, text);
    EXPECT_THAT([&] { pieces_of({.path = path, .max_line_bytes = 100}); },
                ThrowsMessage<DataError>(HasSubstr(path + message)));
  }
  const TemporaryFolder folder_;
};

TEST_F(TextDocumentsTest, APlainTextIsOneDocumentOfTheFilesBytes) {
  const std::string text("one\r\n\n\xFF\0two", 11);  // not UTF-8
  EXPECT_THAT(pieces_of({.path = folder_.write("a.txt", text)}), ElementsAre(Pair(text, true)));
  EXPECT_THAT(pieces_of({.path = folder_.write("a", text)}), ElementsAre(Pair(text, true)));
  EXPECT_THAT(pieces_of({.path = folder_.write("a.txt.gz", testing::gzip_of(text))}),
              ElementsAre(Pair(text, true)));
}

TEST_F(TextDocumentsTest, ALongTextIsCutBetweenTwoWordsOnTwoLines) {
  const auto path = folder_.write("a.txt", "one two\nthree\n\nfour\n five\nsix seven eight");
  EXPECT_THAT(pieces_of({.path = path, .piece_bytes = 16}),
              ElementsAre(Pair("one two\n", false), Pair("three\n\nfour\n fiv", false), Pair("e\n", false),
                          Pair("six seven eight", true)));
  EXPECT_EQ(pieces_of({.path = path, .piece_bytes = 100}).size(), 1U);
}

TEST_F(TextDocumentsTest, ALongLineIsCutBetweenTwoCharacters) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "\xF0\x9F\x98\x80";
  std::string joined;
  for (const auto& [piece, is_end] : pieces_of({.path = folder_.write("a.txt", text), .piece_bytes = 10})) {
    EXPECT_EQ(piece.size() % 4, 0U);
    EXPECT_LE(piece.size(), 11U);
    joined += piece;
    EXPECT_EQ(is_end, joined.size() == text.size());
  }
  EXPECT_EQ(joined, text);
}

// Tokenizers cut words by patterns such as these, GPT-2's and Llama 3's.
TEST_F(TextDocumentsTest, WordsAreTheSameInPiecesThatAreCutAfterANewLine) {
  constexpr const char* kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  constexpr const char* kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::vector<std::string> parts = {"word",
                                          "x",
                                          "12345",
                                          "!?",
                                          " ",
                                          "\n",
                                          "\n",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "\v",
                                          "\xC2\x85",
                                          "\xC2\xA0",
                                          "\xE3\x80\x80",
                                          "\xE2\x80\xA8",
                                          "\xE2\x80\x83",
                                          "\xE1\x9A\x80",
                                          "\xE2\x81\x9F",
                                          "\xE6\x96\x87",
                                          "\xC3\xA9",
                                          "'s"};
  std::mt19937 random(3);
  int num_cuts = 0;
  for (const char* regex : {kGpt2, kLlama3}) {
    const Pattern pattern = Pattern::of_regex(regex);
    const auto words_of = [&](const std::string& text) {
      PatternMatcher matcher;
      std::vector<std::string> words;
      for (size_t at = 0; at < text.size();) {
        const auto match = matcher.find(pattern, text, at);
        words.push_back(text.substr(match->begin, match->end - match->begin));
        at = match->end;
      }
      return words;
    };
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 12; ++i) text += parts[random() % parts.size()];
      text += std::string(200, 'z');  // a text without a place to cut is cut in here
      const auto first = pieces_of({.path = folder_.write("a.txt", text), .piece_bytes = 100}).front().first;
      if (!first.ends_with('\n')) continue;
      auto words = words_of(first);
      for (const std::string& word : words_of(text.substr(first.size()))) words.push_back(word);
      EXPECT_EQ(words, words_of(text)) << text;
      ++num_cuts;
    }
  }
  EXPECT_GT(num_cuts, 100);
}

TEST_F(TextDocumentsTest, PiecesOfAnyTextMakeTheText) {
  // All texts of 8 letters out of a word, a space, a new line and a byte that only continues a character.
  for (int number = 0; number < 1 << 16; number += 61) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += "w \n\x80"[number >> (2 * i) & 3];
    folder_.write("a.txt", text);
    std::string joined;
    int num_ends = 0;
    for (const auto& [piece, is_end] : pieces_of({.path = folder_.file("a.txt"), .piece_bytes = 3})) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
      num_ends += is_end ? 1 : 0;
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(num_ends, 1);
  }
}

TEST_F(TextDocumentsTest, EachLineOfJsonIsADocument) {
  const std::string text = "{\"text\": \"a\\nb\"}\r\n\n  \n{\"text\": \"\"}\n{\"text\": \"c\", \"id\": 7}";
  const auto expected = ElementsAre(Pair("a\nb", true), Pair("c", true));
  for (const std::string name : {"a.jsonl", "a.ndjson", "a.json"})
    for (const std::string end : {"", "\n", "\n\n"})
      EXPECT_THAT(pieces_of({.path = folder_.write(name, text + end)}), expected);
  EXPECT_THAT(pieces_of({.path = folder_.write("a.jsonl.gz", testing::gzip_of(text))}), expected);
  // Lines that are longer than what is read at once.
  EXPECT_THAT(pieces_of({.path = folder_.file("a.jsonl"), .piece_bytes = 1}), expected);
  EXPECT_THAT(pieces_of({.path = folder_.write("b.jsonl", R"({"body": "x"})"), .json_field = "body"}),
              ElementsAre(Pair("x", true)));
}

TEST_F(TextDocumentsTest, NamesTheFileAndLineThatCannotBeUsed) {
  expect_refused("a.jsonl", "{\"text\": \"a\"}\n\n{\"txt\": \"b\"}\n",
                 ": line 3: expected an object with the field");
  expect_refused("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"",
                 ": line 2: expected JSON, but it is broken");
  expect_refused("a.jsonl", "{\"text\": \"a\"}\n" + std::string(101, ' '),
                 ": line 2: expected at most 100 bytes");
  expect_refused("a.jsonl", "{\"text\": \"\"}\n", ": expected text, but the file has none");
  expect_refused("a.txt", "", ": expected text, but the file has none");
  expect_refused("a.txt.gz", "no gzip", "");
  EXPECT_THAT([&] { pieces_of({.path = folder_.path()}); },
              ThrowsMessage<DataError>(HasSubstr("expected a regular file, but it is a folder")));
  EXPECT_THROW(pieces_of({.path = folder_.file("none")}), DataError);
}

}  // namespace
}  // namespace lockstep
