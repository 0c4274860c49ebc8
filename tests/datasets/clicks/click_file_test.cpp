#include "lockstep/datasets/clicks/click_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

class ClickFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  const TemporaryFolder folder_;
  const std::string path_ = std::string(folder_.path()) + "/day_0";
};

std::string lines_of(const GeneratedClicks& clicks, size_t count, const std::string& line_break = "\n") {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += click_row_text(clicks.row(i)) + line_break;
  return text;
}

void expect_equal(const ClickBatch& batch, const ClickBatch& expected) {
  EXPECT_TRUE(std::get<0>(batch.data).equal(std::get<0>(expected.data)));
  EXPECT_TRUE(std::get<1>(batch.data).equal(std::get<1>(expected.data)));
  EXPECT_TRUE(batch.target.equal(expected.target));
}

std::vector<size_t> all_indices(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

TEST_F(ClickFileTest, GivesTheRowsThatAreInIt) {
  const GeneratedClicks clicks;
  // More rows than are read at once, and than a chunk of the index holds.
  constexpr size_t kCount = 30'000;
  const ClickFile file({.path = write(lines_of(clicks, kCount))});
  EXPECT_EQ(file.size(), kCount);
  EXPECT_EQ(file.num_malformed(), 0);
  expect_equal(file.get_batch(all_indices(kCount)), clicks.get_batch(all_indices(kCount)));
  const std::vector<size_t> some{29'999, 4095, 4096, 4097, 0, 17, 17, 4096, 12'345};
  expect_equal(file.get_batch(some), clicks.get_batch(some));
  EXPECT_EQ(file.get_batch({}).target.sizes(), (std::vector<int64_t>{0}));
}

TEST_F(ClickFileTest, TakesBothLineBreaksAndALastLineWithoutAny) {
  const GeneratedClicks clicks;
  auto text = lines_of(clicks, 5, "\r\n");
  expect_equal(ClickFile({.path = write(text)}).get_batch(all_indices(5)), clicks.get_batch(all_indices(5)));
  text = lines_of(clicks, 5);
  text.pop_back();
  expect_equal(ClickFile({.path = write(text)}).get_batch(all_indices(5)), clicks.get_batch(all_indices(5)));
}

TEST_F(ClickFileTest, LeavesOutMalformedRowsAndCountsThem) {
  const GeneratedClicks clicks;
  std::string text = "what is this\n";
  for (size_t i = 0; i < 10'000; ++i) {
    text += click_row_text(clicks.row(i)) + "\n";
    if (i % 1000 == 7) text += "\n";
    if (i == 5000) text += std::string(10'000'000, 'x') + "\n";  // more than is kept of a line
  }
  const ClickFile file({.path = write(text), .skips_malformed = true});
  EXPECT_EQ(file.size(), 10'000U);
  EXPECT_EQ(file.num_malformed(), 12);
  EXPECT_EQ(file.first_malformed(), "line 1: field 1: expected a label of 0 or 1, but got 'what is this'");
  expect_equal(file.get_batch(all_indices(10'000)), clicks.get_batch(all_indices(10'000)));
  EXPECT_THAT(([&] { ClickFile({.path = path_}); }),
              ThrowsMessage<DataError>(StartsWith(path_ + ": line 1: field 1")));
}

TEST_F(ClickFileTest, AThreadEachMayRead) {
  const GeneratedClicks clicks;
  const ClickFile file({.path = write(lines_of(clicks, 1000))});
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < 1000; i += 4) expect_equal(file.get_batch({i}), clicks.get_batch({i}));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(ClickFileTest, NamesAFileThatCannotBeUsed) {
  EXPECT_THAT(([&] { ClickFile({.path = path_}); }),
              ThrowsMessage<DataError>(AllOf(StartsWith(path_), HasSubstr("No such file"))));
  EXPECT_THAT(([&] { ClickFile({.path = folder_.path()}); }),
              ThrowsMessage<DataError>(HasSubstr("expected a regular file, but it is a folder")));
  write("");
  EXPECT_THAT(([&] { ClickFile({.path = path_}); }), ThrowsMessage<DataError>(HasSubstr("but it has none")));
  write("no\nrows\n");
  EXPECT_THAT(([&] { ClickFile({.path = path_, .skips_malformed = true}); }),
              ThrowsMessage<DataError>(HasSubstr("but it has none: line 1: field 1")));
}

TEST_F(ClickFileTest, RefusesRowsThatAreNotThere) {
  const GeneratedClicks clicks({.count = 10});
  const ClickFile file({.path = write(lines_of(clicks, 10))});
  EXPECT_THAT(
      [&] {
        file.get_batch({3, 10});
      },
      ThrowsMessage<std::invalid_argument>("[ClickFile] expected indices below 10, but got 10"));
  EXPECT_THAT(
      [&] { clicks.get_batch({10}); },
      ThrowsMessage<std::invalid_argument>("[GeneratedClicks] expected indices below 10, but got 10"));
  std::vector<ClickRow> rows;
  file.read_rows(8, 2, rows);
  EXPECT_EQ(rows, (std::vector{clicks.row(8), clicks.row(9)}));
  EXPECT_THAT(
      [&] { file.read_rows(8, 3, rows); },
      ThrowsMessage<std::invalid_argument>("[ClickFile] expected rows below 10, but got 3 from 8 on"));
  EXPECT_THAT([&] { file.read_rows(1, SIZE_MAX, rows); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("below 10")));
}

TEST_F(ClickFileTest, NoticesThatTheFileHasChanged) {
  const GeneratedClicks clicks;
  const auto text = lines_of(clicks, 100);
  const ClickFile file({.path = write(text)});
  write(text.substr(0, text.size() / 2));
  EXPECT_THAT([&] { file.get_batch({99}); }, ThrowsMessage<DataError>(HasSubstr("but it has changed")));
  write("0" + text);
  EXPECT_THAT([&] { file.get_batch({50}); }, ThrowsMessage<DataError>(HasSubstr("but it has changed")));
}

}  // namespace
}  // namespace lockstep
