#include "lockstep/datasets/tokens/internal/token_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/datasets/tokens/token_bytes.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::llm_c_header;
using ::testing::ThrowsMessage;

TokenLayout layout_of(const std::string& bytes, TokenFormat format = TokenFormat::kAuto) {
  return token_layout({.path = "a.bin",
                       .bytes = std::string_view(bytes).substr(0, kTokenHeaderBytes),
                       .file_size = bytes.size()},
                      format);
}

void expect_layout(const TokenLayout& layout, const TokenLayout& expected) {
  EXPECT_EQ(layout.first_byte, expected.first_byte);
  EXPECT_EQ(layout.bytes_per_token, expected.bytes_per_token);
  EXPECT_EQ(layout.num_tokens, expected.num_tokens);
}

void expect_refused(const std::string& bytes, TokenFormat format, const std::string& message) {
  EXPECT_THAT([&] { layout_of(bytes, format); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("a.bin: "), HasSubstr(message))));
}

TEST(TokenLayout, OfAFileWithoutHeaderIsAllItsBytes) {
  expect_layout(layout_of(std::string(6, 'x')), {.first_byte = 0, .bytes_per_token = 2, .num_tokens = 3});
  expect_layout(layout_of(std::string(4096, 'x')),
                {.first_byte = 0, .bytes_per_token = 2, .num_tokens = 2048});
  expect_layout(layout_of(std::string(8, 'x'), TokenFormat::kUint32),
                {.first_byte = 0, .bytes_per_token = 4, .num_tokens = 2});
  // The format says that the header's magic number is tokens.
  expect_layout(layout_of(llm_c_header({20240520, 1, 0}), TokenFormat::kUint16),
                {.first_byte = 0, .bytes_per_token = 2, .num_tokens = 512});
}

TEST(TokenLayout, OfLlmCsFilesIsInTheirHeader) {
  for (const auto format : {TokenFormat::kAuto, TokenFormat::kLlmC}) {
    expect_layout(layout_of(llm_c_header({20240520, 1, 3}) + std::string(6, 'x'), format),
                  {.first_byte = 1024, .bytes_per_token = 2, .num_tokens = 3});
    expect_layout(layout_of(llm_c_header({20240801, 7, 3}) + std::string(12, 'x'), format),
                  {.first_byte = 1024, .bytes_per_token = 4, .num_tokens = 3});
  }
}

TEST(TokenLayout, RefusesFilesThatAreCutOrEmpty) {
  expect_refused("", TokenFormat::kAuto, "expected tokens, but the file is empty");
  expect_refused("", TokenFormat::kLlmC, "expected tokens, but the file is empty");
  expect_refused("x", TokenFormat::kAuto, "file size: expected a multiple of 2 bytes");
  expect_refused(std::string(2049, 'x'), TokenFormat::kAuto, "but got 2049 bytes");
  expect_refused(std::string(6, 'x'), TokenFormat::kUint32, "expected a multiple of 4 bytes");
  const std::string header = llm_c_header({20240520, 1, 3});
  expect_refused(header.substr(0, 1000), TokenFormat::kAuto,
                 "expected a header of 1024 bytes, but got 1000 bytes");
  for (const size_t size : {0U, 4U, 5U, 8U})
    expect_refused(header + std::string(size, 'x'), TokenFormat::kAuto,
                   "file size: expected 1030 bytes for the 3 tokens of its header, but got " +
                       std::to_string(1024 + size));
}

TEST(TokenLayout, RefusesOtherHeaders) {
  const std::string tokens(6, 'x');
  expect_refused(llm_c_header({20240521, 1, 3}) + tokens, TokenFormat::kLlmC,
                 "magic number of the header: expected 20240520 or 20240801, but got 20240521");
  expect_refused(llm_c_header({20240520, 2, 3}) + tokens, TokenFormat::kAuto,
                 "version in the header with magic number 20240520: expected 1, but got 2");
  expect_refused(llm_c_header({20240801, 1, 3}) + tokens, TokenFormat::kAuto, "expected 7, but got 1");
  expect_refused(llm_c_header({20240520, 1, 0}), TokenFormat::kAuto,
                 "number of tokens in the header: expected 1 or more, but got 0");
  expect_refused(llm_c_header({20240520, 1, -3}) + tokens, TokenFormat::kAuto, "but got -3");
  expect_refused(llm_c_header({20240801, 7, INT32_MAX}) + tokens, TokenFormat::kAuto,
                 "expected 8589935612 bytes");
}

TEST(TokenHeader, IsReadAsItIsWritten) {
  const TokenHeaderNotes notes = {1, UINT64_MAX, 3, 4};
  for (const int width : {2, 4}) {
    const std::string header = token_header({.bytes_per_token = width, .num_tokens = 5}, notes);
    expect_layout(layout_of(header + std::string(5 * static_cast<size_t>(width), 'x')),
                  {.first_byte = 1024, .bytes_per_token = width, .num_tokens = 5});
    EXPECT_EQ(token_header_notes(header), notes);
  }
  EXPECT_EQ(token_header({.bytes_per_token = 2, .num_tokens = 5}, {}), llm_c_header({20240520, 1, 5}));
}

}  // namespace
}  // namespace lockstep
