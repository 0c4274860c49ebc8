#include "lockstep/datasets/tokens/internal/tokenized_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

class TokenizedTextTest : public ::testing::Test {
 protected:
  /// Each byte is a token, and 0 is the end of a text.
  TokenizedText bytes_of(const std::string& path) {
    return {.path = path,
            .encoding = {.encode =
                             [this](std::string_view text) {
                               ++num_calls_;
                               std::vector<uint32_t> tokens;
                               for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
                               return tokens;
                             },
                         .identity = "bytes"},
            .vocab_size = 256,
            .max_bytes_in_memory = 1000,
            .on_message = [this](const std::string& message) { messages_ += message + "\n"; }};
  }
  TokenizedText cached_bytes_of(const std::string& path) {
    auto text = bytes_of(path);
    text.cache_folder = cache_;
    return text;
  }
  static std::string text_of(const TokenPart& part) {
    std::vector<int64_t> tokens(part.size());
    part.copy(0, tokens);
    return {tokens.begin(), tokens.end()};
  }

  const TemporaryFolder folder_;
  const std::string cache_ = folder_.file("run/tokens");
  int num_calls_ = 0;
  std::string messages_;
};

TEST_F(TokenizedTextTest, NamesTheFirstByteThatIsNotUtf8IfTheTextMustBe) {
  auto text = bytes_of(folder_.write("a.txt", "caf\xC3\xA9, caf\xE9"));
  EXPECT_EQ(tokenize_text(text)->size(), 12U);
  text.encoding.requires_utf8 = true;
  EXPECT_THAT(
      [&] { tokenize_text(text); },
      ThrowsMessage<DataError>(HasSubstr("a.txt: byte 10 of its text: expected valid UTF-8, but got 0xe9")));
  text.path = folder_.write("b.txt", "caf\xC3\xA9");
  EXPECT_EQ(tokenize_text(text)->size(), 6U);
}

TEST_F(TokenizedTextTest, HasTheEndOfTextAfterEachDocument) {
  const auto plain = folder_.write("a.txt", "one\n");
  const auto lines = folder_.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  for (const bool is_cached : {false, true}) {
    const auto tokens_of = [&](const std::string& path) {
      return text_of(*tokenize_text(is_cached ? cached_bytes_of(path) : bytes_of(path)));
    };
    EXPECT_EQ(tokens_of(plain), std::string("one\n\0", 5));
    EXPECT_EQ(tokens_of(lines), std::string("one\0two\0", 8));
  }
}

TEST_F(TokenizedTextTest, TakesFourBytesForEachTokenOfALargeVocabulary) {
  auto text = bytes_of(folder_.write("a.txt", "ab"));
  text.vocab_size = 65'536;
  EXPECT_EQ(tokenize_text(text)->width(), 2);
  text.vocab_size = 65'537;
  text.encoding.end_of_text = 65'536;
  for (const std::string& folder : {std::string(), cache_}) {
    text.cache_folder = folder;
    const auto part = tokenize_text(text);
    EXPECT_EQ(part->width(), 4);
    std::vector<int64_t> tokens(3);
    EXPECT_EQ(part->copy(0, tokens), 65'536U);
    EXPECT_EQ(tokens, (std::vector<int64_t>{'a', 'b', 65'536}));
  }
}

TEST_F(TokenizedTextTest, IsEncodedOnceForTheCache) {
  const auto path = folder_.write("a.txt", "one");
  EXPECT_EQ(text_of(*tokenize_text(cached_bytes_of(path))), std::string("one\0", 4));
  EXPECT_EQ(messages_, path + ": turning its text into tokens, once\n");
  EXPECT_EQ(text_of(*tokenize_text(cached_bytes_of(path))), std::string("one\0", 4));
  EXPECT_EQ(num_calls_, 1);
  // Another tokenizer has a file of its own, and so has a file of the same name.
  auto other = cached_bytes_of(path);
  other.encoding.identity = "other bytes";
  EXPECT_EQ(tokenize_text(other)->size(), 4U);
  EXPECT_EQ(tokenize_text(cached_bytes_of(folder_.write("b/a.txt", "two!")))->size(), 5U);
  EXPECT_EQ(num_calls_, 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache_), {}), 3);
  EXPECT_EQ(tokenize_text(cached_bytes_of(path))->size(), 4U);
  EXPECT_EQ(num_calls_, 3);
}

TEST_F(TokenizedTextTest, IsCachedHoweverLongItsNameIs) {
  // 255 bytes is the most that file systems allow, and the names of the cache's files are longer.
  const auto path = folder_.write(std::string(251, 'a') + ".txt", "one");
  EXPECT_EQ(text_of(*tokenize_text(cached_bytes_of(path))), std::string("one\0", 4));
  const auto other = folder_.write(std::string(250, 'a') + "b.txt", "two!");
  EXPECT_EQ(text_of(*tokenize_text(cached_bytes_of(other))), std::string("two!\0", 5));
  EXPECT_EQ(std::distance(fs::directory_iterator(cache_), {}), 2);
}

TEST_F(TokenizedTextTest, IsEncodedAgainIfTheFileOrTheCacheChanged) {
  const auto path = folder_.write("a.txt", "one");
  tokenize_text(cached_bytes_of(path));
  folder_.write("a.txt", "two!");
  EXPECT_EQ(text_of(*tokenize_text(cached_bytes_of(path))), std::string("two!\0", 5));
  EXPECT_EQ(num_calls_, 2);
  const auto cached = fs::directory_iterator(cache_)->path();
  fs::resize_file(cached, fs::file_size(cached) - 1);
  EXPECT_EQ(text_of(*tokenize_text(cached_bytes_of(path))), std::string("two!\0", 5));
  EXPECT_EQ(num_calls_, 3);
}

TEST_F(TokenizedTextTest, IsEncodedOnceBySeveralThatNeedIt) {
  const auto path = folder_.write("a.txt", std::string(100'000, 'x'));
  std::vector<std::thread> threads;
  std::atomic<int> num_calls = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      TokenizedText text{.path = path, .vocab_size = 256, .cache_folder = cache_};
      text.encoding.identity = "x";
      text.encoding.encode = [&](std::string_view bytes) {
        ++num_calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return std::vector<uint32_t>(bytes.size(), 'x');
      };
      EXPECT_EQ(tokenize_text(text)->size(), 100'001U);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_calls, 1);
}

TEST_F(TokenizedTextTest, NamesTheFileIfItsTokensCannotBeUsed) {
  const auto path = folder_.write("a.txt", std::string(500, 'x'));
  auto text = bytes_of(path);
  text.max_bytes_in_memory = 1002;
  EXPECT_EQ(tokenize_text(text)->size(), 501U);
  text.max_bytes_in_memory = 1001;
  EXPECT_THAT(
      [&] { tokenize_text(text); },
      ThrowsMessage<DataError>(HasSubstr(path + ": expected tokens of at most 1001 bytes of memory")));
  text = cached_bytes_of(path);
  text.vocab_size = 'x';
  EXPECT_THAT(
      [&] { tokenize_text(text); },
      ThrowsMessage<DataError>(HasSubstr(path + ": tokens of its text: expected below the size of the "
                                                "vocabulary, 120, but got 120 from the tokenizer")));
  EXPECT_TRUE(fs::is_empty(cache_));
  // Of JSON lines, it names the line, and so it does if the tokenizer cannot encode a text.
  const auto lines = folder_.write("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"x\"}\n");
  text = bytes_of(lines);
  text.vocab_size = 'x';
  EXPECT_THAT(
      [&] { tokenize_text(text); },
      ThrowsMessage<DataError>(HasSubstr(lines + ": line 3: tokens of its text: expected below the size")));
  text = bytes_of(lines);
  text.encoding.encode = [](std::string_view bytes) {
    if (bytes == "x") throw DataError("pattern 'x': match limit exceeded");
    return std::vector<uint32_t>{1};
  };
  EXPECT_THAT([&] { tokenize_text(text); },
              ThrowsMessage<DataError>(lines + ": line 3: pattern 'x': match limit exceeded"));
  text.path = folder_.write("b.txt", "x");
  EXPECT_THAT([&] { tokenize_text(text); },
              ThrowsMessage<DataError>(text.path + ": pattern 'x': match limit exceeded"));
  text = cached_bytes_of(path);
  text.encoding.encode = [&](std::string_view) {
    folder_.write("a.txt", "other");
    return std::vector<uint32_t>{1};
  };
  EXPECT_THAT([&] { tokenize_text(text); },
              ThrowsMessage<DataError>(HasSubstr("it changed while it was read")));
  EXPECT_TRUE(fs::is_empty(cache_));
}

}  // namespace
}  // namespace lockstep
