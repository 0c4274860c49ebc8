#include "lockstep/datasets/tokens/token_file_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_bytes.h"
#include "lockstep/tests/datasets/tokens/token_bytes.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using Tokens = std::vector<uint32_t>;

std::string content_of(const std::string& path) {
  const auto bytes = read_file(path, 1 << 24);
  return {bytes.begin(), bytes.end()};
}

TEST(TokenFileWriter, WritesFilesAsLlmCDoes) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.bin");
  TokenFileWriter small({.path = path, .vocab_size = 65'536});
  small.append(Tokens{1, 65'535});
  small.append(Tokens{});
  small.append(Tokens{7});
  EXPECT_FALSE(std::filesystem::exists(path));
  small.finish();
  EXPECT_EQ(content_of(path),
            testing::llm_c_header({20240520, 1, 3}) + testing::bytes_of(std::vector<uint16_t>{1, 65'535, 7}));
  TokenFileWriter large({.path = path, .vocab_size = 65'537});
  large.append(Tokens{1, 65'536});
  large.finish();
  EXPECT_EQ(content_of(path), testing::llm_c_header({20240801, 7, 2}) + testing::bytes_of(Tokens{1, 65'536}));
}

TEST(TokenFileWriter, WritesMoreThanItHoldsInMemory) {
  const TemporaryFolder folder;
  TokenFileWriter writer({.path = folder.file("a.bin"), .vocab_size = 1000});
  std::vector<uint16_t> all;
  for (int part = 0; part < 50; ++part) {
    const Tokens tokens(20'000, static_cast<uint32_t>(part));
    writer.append(tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  writer.finish();
  EXPECT_EQ(content_of(folder.file("a.bin")).substr(1024), testing::bytes_of(all));
}

TEST(TokenFileWriter, LeavesNoFileUnlessItIsFinished) {
  const TemporaryFolder folder;
  {
    TokenFileWriter writer({.path = folder.file("a.bin"), .vocab_size = 10});
    writer.append(Tokens{9});
    EXPECT_THAT(
        [&] {
          writer.append(Tokens{1, 10});
        },
        ThrowsMessage<std::invalid_argument>(HasSubstr("a.bin: expected tokens below 10, but got 10")));
  }
  EXPECT_EQ(folder.num_files(), 0U);
  TokenFileWriter empty({.path = folder.file("a.bin"), .vocab_size = 10});
  EXPECT_THROW(empty.finish(), DataError);
  EXPECT_THAT([&] { TokenFileWriter({.path = folder.file("no/a.bin")}); },
              ThrowsMessage<std::system_error>(HasSubstr("no/a.bin")));
}

TEST(TokenFileWriter, LeavesAFinishedFileAlone) {
  const TemporaryFolder folder;
  TokenFileWriter writer({.path = folder.file("a.bin"), .vocab_size = 10});
  writer.append(Tokens{1, 2});
  writer.finish();
  const std::string content = content_of(folder.file("a.bin"));
  EXPECT_THAT([&] { writer.append(Tokens{3}); },
              ThrowsMessage<std::logic_error>(HasSubstr("a.bin: expected no call after finish()")));
  EXPECT_THAT([&] { writer.finish(); }, ThrowsMessage<std::logic_error>(HasSubstr("a.bin")));
  EXPECT_EQ(content_of(folder.file("a.bin")), content);
}

}  // namespace
}  // namespace lockstep
