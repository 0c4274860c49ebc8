#include "lockstep/datasets/tokens/token_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <filesystem>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/tests/datasets/tokens/token_bytes.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::llm_c_header;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using Rows = std::vector<std::vector<int64_t>>;

static_assert(CollatedDataset<TokenFiles>);

Rows rows_of(const torch::Tensor& tensor) {
  EXPECT_EQ(tensor.scalar_type(), torch::kLong);
  Rows rows;
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    const auto* row = tensor[i].const_data_ptr<int64_t>();
    rows.emplace_back(row, row + tensor.size(1));
  }
  return rows;
}

std::vector<uint16_t> numbers(uint16_t first, size_t count) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class TokenFilesTest : public ::testing::Test {
 protected:
  static void expect_refused(const TokenFilesOptions& options, const std::string& message) {
    EXPECT_THAT([&] { TokenFiles tokens(options); }, ThrowsMessage<DataError>(HasSubstr(message)));
  }
  const TemporaryFolder folder_;
};

TEST_F(TokenFilesTest, CutsTheTokensOfAllFilesIntoSequences) {
  folder_.write("a_1.bin", bytes_of(numbers(0, 5)));                                   // as nanoGPT's
  folder_.write("a_2.bin", llm_c_header({20240520, 1, 2}) + bytes_of(numbers(5, 2)));  // as llm.c's
  folder_.write("a_10.bin", llm_c_header({20240801, 7, 3}) + bytes_of(std::vector<uint32_t>{7, 8, 9}));
  const TokenFiles tokens({.paths = {folder_.file("a_*.bin")}, .sequence_length = 3, .vocab_size = 10});
  EXPECT_THAT(tokens.paths(),
              ElementsAre(folder_.file("a_1.bin"), folder_.file("a_2.bin"), folder_.file("a_10.bin")));
  EXPECT_EQ(tokens.num_tokens(), 10U);
  ASSERT_EQ(tokens.size(), 3U);
  const auto batch = tokens.get_batch({2, 0, 1, 0});
  EXPECT_EQ(rows_of(batch.data), (Rows{{6, 7, 8}, {0, 1, 2}, {3, 4, 5}, {0, 1, 2}}));
  EXPECT_EQ(rows_of(batch.target), (Rows{{7, 8, 9}, {1, 2, 3}, {4, 5, 6}, {1, 2, 3}}));
  EXPECT_EQ(tokens.get_batch({}).data.sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_THROW(tokens.get_batch({3}), std::invalid_argument);
}

TEST_F(TokenFilesTest, LeavesOutTheTokensThatFillNoSequence) {
  folder_.write("a.bin", bytes_of(numbers(0, 10)));
  const auto size_of = [&](int64_t sequence_length, std::optional<int64_t> stride = {}) {
    return *TokenFiles({.paths = {folder_.file("a.bin")},
                        .sequence_length = sequence_length,
                        .vocab_size = 10,
                        .stride = stride})
                .size();
  };
  EXPECT_EQ(size_of(1), 9U);
  EXPECT_EQ(size_of(2), 4U);
  EXPECT_EQ(size_of(3), 3U);
  EXPECT_EQ(size_of(4), 2U);
  EXPECT_EQ(size_of(5), 1U);
  EXPECT_EQ(size_of(9), 1U);
  EXPECT_EQ(size_of(3, 1), 7U);
  EXPECT_EQ(size_of(3, 6), 2U);
  EXPECT_EQ(size_of(3, 7), 1U);
  const TokenFiles overlapping(
      {.paths = {folder_.file("a.bin")}, .sequence_length = 3, .vocab_size = 10, .stride = 2});
  EXPECT_EQ(rows_of(overlapping.get_batch({0, 1, 3}).data), (Rows{{0, 1, 2}, {2, 3, 4}, {6, 7, 8}}));
}

TEST_F(TokenFilesTest, TakesTextAndTokensTogether) {
  folder_.write("1.bin", bytes_of(std::vector<uint16_t>{3, 4}));
  folder_.write("2.txt", "ab");
  folder_.write("3.jsonl", "{\"text\": \"c\"}\n{\"text\": \"d\"}\n");
  TokenFilesOptions options{.paths = {folder_.path()}, .sequence_length = 2, .vocab_size = 256};
  EXPECT_THAT([&] { TokenFiles tokens(options); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("expected an encoding for the text in"), HasSubstr("2.txt"))));
  options.encoding.encode = [](std::string_view text) {
    return std::vector<uint32_t>(text.begin(), text.end());
  };
  for (const std::string cache : {"", "cache"}) {
    if (!cache.empty()) options.cache_folder = folder_.file("cache");
    options.encoding.identity = "bytes";
    const TokenFiles tokens(options);
    EXPECT_EQ(rows_of(tokens.get_batch({0, 1, 2, 3}).data), (Rows{{3, 4}, {'a', 'b'}, {0, 'c'}, {0, 'd'}}));
  }
  options.encoding.identity = "";
  EXPECT_THROW(TokenFiles tokens(options), std::invalid_argument);
}

TEST_F(TokenFilesTest, RefusesACacheFolderThatHoldsTheFiles) {
  // At the next start, the folder or pattern would name the cache's files, too, and all text would be there
  // twice.
  folder_.write("text/a.txt", "abcd");
  for (const std::string place : {"text", "text/*", "text/a.txt"}) {
    for (const std::string cache : {"text", "text/../text/"}) {
      const TokenFilesOptions options{.paths = {folder_.file(place)},
                                      .sequence_length = 2,
                                      .vocab_size = 256,
                                      .encoding = {.encode =
                                                       [](std::string_view text) {
                                                         return std::vector<uint32_t>(text.begin(),
                                                                                      text.end());
                                                       },
                                                   .identity = "bytes"},
                                      .cache_folder = folder_.file(cache)};
      EXPECT_THAT([&] { TokenFiles tokens(options); },
                  ThrowsMessage<std::invalid_argument>(
                      AllOf(HasSubstr("expected a cache folder without the files that `paths` names, but"),
                            HasSubstr("holds " + folder_.file("text/a.txt")))));
    }
  }
}

TEST_F(TokenFilesTest, NamesTheTokenThatIsBeyondTheVocabulary) {
  auto wrong = numbers(0, 1000);
  wrong[700] = 5000;
  folder_.write("a.bin", bytes_of(numbers(0, 1000)));
  folder_.write("b.bin", bytes_of(wrong));
  TokenFilesOptions options{
      .paths = {folder_.file("a.bin"), folder_.file("b.bin")}, .sequence_length = 100, .vocab_size = 1000};
  const std::string message =
      folder_.file("b.bin") +
      ": token 700, counted from 0: expected below the size of the vocabulary, 1000, but "
      "got 5000";
  expect_refused(options, message);
  // Not checked at once, it is found when it is read.
  options.check_bytes = 1400;
  const TokenFiles tokens(options);
  EXPECT_NO_THROW(tokens.get_batch({0, 15, 18}));
  for (const size_t index : {16U, 17U})  // the token is the last target of one, and the first of the other
    EXPECT_THAT([&] { tokens.get_batch({0, index}); }, ThrowsMessage<DataError>(message));
  options.check_bytes = 1402;
  expect_refused(options, message);
  options.vocab_size = 5001;
  EXPECT_NO_THROW(TokenFiles tokens(options));
}

TEST_F(TokenFilesTest, RefusesFilesThatHoldNoTokens) {
  const auto options_of = [&](const std::string& name) {
    return TokenFilesOptions{.paths = {folder_.file(name)}, .sequence_length = 2, .vocab_size = 10};
  };
  expect_refused(options_of("none.bin"), "none.bin: cannot open");
  folder_.write("empty.bin", "");
  expect_refused(options_of("empty.bin"), "empty.bin: expected tokens, but the file is empty");
  folder_.write("odd.bin", "abc");
  expect_refused(options_of("odd.bin"), "odd.bin: file size: expected a multiple of 2 bytes");
  folder_.write("short.bin", bytes_of(numbers(0, 2)));
  expect_refused(options_of("short.bin"),
                 "expected at least 3 tokens for a sequence of 2 and the token after it, "
                 "but got 2");
  ASSERT_EQ(::mkfifo(folder_.file("fifo.bin").c_str(), 0600), 0);
  expect_refused(options_of("fifo.bin"), "fifo.bin: expected a regular file, but it is a named pipe");
  std::filesystem::create_directory(folder_.file("folder.bin"));
  expect_refused(options_of("folder.bin"), "folder.bin: expected files in this folder, but it has none");
  folder_.write("a.bin.gz", "abcd");
  expect_refused(options_of("a.bin.gz"), "a.bin.gz: expected a file of tokens that is not compressed");
}

TEST_F(TokenFilesTest, NoticesThatAFileWasCut) {
  folder_.write("a.bin", bytes_of(numbers(0, 10)));
  const TokenFiles tokens({.paths = {folder_.file("a.bin")}, .sequence_length = 3, .vocab_size = 10});
  std::filesystem::resize_file(folder_.file("a.bin"), 4);
  EXPECT_THAT(
      [&] { tokens.get_batch({0}); },
      ThrowsMessage<DataError>(HasSubstr("a.bin: file size: expected 20 bytes as when it was opened, but "
                                         "got 4")));
  EXPECT_THROW((void)tokens.identity(), DataError);
  // A file of its name that takes its place does not matter.
  folder_.write("b.bin", bytes_of(numbers(0, 10)));
  const TokenFiles others({.paths = {folder_.file("b.bin")}, .sequence_length = 3, .vocab_size = 10});
  std::filesystem::rename(folder_.file("a.bin"), folder_.file("b.bin"));
  EXPECT_EQ(rows_of(others.get_batch({0}).data), (Rows{{0, 1, 2}}));
}

TEST_F(TokenFilesTest, HasTheIdentityOfItsTokensHoweverTheyAreStored) {
  folder_.write("whole.bin", bytes_of(numbers(0, 10)));
  folder_.write("parts/1.bin", bytes_of(numbers(0, 4)));
  folder_.write("parts/2.bin", llm_c_header({20240520, 1, 6}) + bytes_of(numbers(4, 6)));
  folder_.write("others.bin", bytes_of(numbers(1, 10)));
  const auto identity = [&](const std::string& name, int64_t sequence_length = 3) {
    return TokenFiles({.paths = {folder_.file(name)}, .sequence_length = sequence_length, .vocab_size = 11})
        .identity();
  };
  EXPECT_THAT(identity("whole.bin"), HasSubstr("10 tokens in 3 sequences of 3 (checksum "));
  EXPECT_EQ(identity("whole.bin"), identity("parts"));
  EXPECT_NE(identity("whole.bin"), identity("others.bin"));
  EXPECT_NE(identity("whole.bin"), identity("whole.bin", 2));
}

TEST_F(TokenFilesTest, RefusesOptionsOutOfRange) {
  const auto path = folder_.write("a.bin", bytes_of(numbers(0, 10)));
  const auto expect_wrong = [](const TokenFilesOptions& options, const std::string& message) {
    EXPECT_THAT([&] { TokenFiles tokens(options); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  expect_wrong({.vocab_size = 10}, "expected files, but got none");
  expect_wrong({.paths = {path}}, "expected the size of the vocabulary, but got 0");
  expect_wrong({.paths = {path}, .sequence_length = 0, .vocab_size = 10},
               "a sequence length of 1 or more, but got 0");
  expect_wrong({.paths = {path}, .vocab_size = 10, .stride = 0}, "a stride of 1 or more, but got 0");
  expect_wrong(
      {.paths = {folder_.write("a.txt", "a")},
       .vocab_size = 10,
       .encoding = {.encode = [](std::string_view) { return std::vector<uint32_t>{1}; }, .end_of_text = 10}},
      "an end-of-text token below the size of the vocabulary, 10, but got 10");
}

}  // namespace
}  // namespace lockstep
