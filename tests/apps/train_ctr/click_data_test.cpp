#include "lockstep/apps/train_ctr/click_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_text;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Rows that differ in their first number.
std::string rows(int64_t first, int64_t count) {
  std::string text;
  for (int64_t i = first; i < first + count; ++i) {
    ClickRow row;
    row.numbers[0] = i;
    text += click_row_text(row) + "\n";
  }
  return text;
}

/// The first numbers of all rows, as models see them.
std::vector<float> first_numbers(const Clicks& clicks) {
  std::vector<size_t> indices(*clicks.size());
  std::iota(indices.begin(), indices.end(), 0);
  const auto column = std::get<0>(clicks.get_batch(indices).data).select(1, 0).contiguous();
  return {column.const_data_ptr<float>(), column.const_data_ptr<float>() + column.numel()};
}

std::vector<float> features(int64_t first, int64_t count) {
  std::vector<float> expected;
  for (int64_t i = first; i < first + count; ++i) expected.push_back(click_feature(i));
  return expected;
}

TEST(ClickData, TheLastRowsOfAFileAreTestedOn) {
  const TemporaryFolder folder;
  CtrWork work;
  work.data = {folder.path() + "/clicks.txt"};
  work.test_share = 0.25;
  write_text(work.data[0], rows(1, 10));
  const auto data = open_click_data(work);
  EXPECT_EQ(first_numbers(data.train), features(1, 7));
  EXPECT_EQ(first_numbers(data.test), features(8, 3));
  EXPECT_FALSE(data.test.best_probability(0));
  work.train_rows = 4;
  work.test_rows = 2;
  const auto less = open_click_data(work);
  EXPECT_EQ(first_numbers(less.train), features(1, 4));
  EXPECT_EQ(first_numbers(less.test), features(8, 2));
  EXPECT_THAT([&] { less.train.get_batch({4}); },  // would be a row to test on
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected indices below 4, but got 4")));
}

TEST(ClickData, SeveralFilesAreOneAfterAnother) {
  const TemporaryFolder folder;
  folder.write("day_2", rows(1, 4));
  folder.write("day_10", rows(5, 4));
  folder.write("extra", rows(9, 2));
  CtrWork work;
  work.data = {folder.file("day_*"), folder.file("extra")};
  work.test_share = 0.2;
  const auto data = open_click_data(work);
  EXPECT_EQ(first_numbers(data.train), features(1, 8));
  EXPECT_EQ(first_numbers(data.test), features(9, 2));
  EXPECT_EQ(data.description, "3 files, " + folder.file("day_2") + " to " + folder.file("extra") +
                                  ", the last rows to test on");
  work.test_data = {folder.file("night_*")};
  EXPECT_THAT([&] { open_click_data(work); }, ThrowsMessage<DataError>(HasSubstr(folder.file("night_*"))));
}

TEST(ClickData, AnotherFileIsTestedOnWhereOneIsNamed) {
  const TemporaryFolder folder;
  CtrWork work;
  work.data = {folder.path() + "/train.txt"};
  work.test_data = {folder.path() + "/test.txt"};
  work.skip_bad = true;
  write_text(work.data[0], rows(1, 5) + "nonsense\n");
  write_text(work.test_data[0], "more nonsense\n" + rows(20, 3));
  const auto data = open_click_data(work);
  EXPECT_EQ(first_numbers(data.train), features(1, 5));
  EXPECT_EQ(first_numbers(data.test), features(20, 3));
  EXPECT_EQ(data.num_malformed, 2);
  EXPECT_THAT(data.first_malformed, HasSubstr(work.data[0] + ": line 6: "));
}

TEST(ClickData, GeneratedRowsToTrainAndToTestOnAreOfOneWorldAndNoneIsBoth) {
  CtrWork work;
  work.train_rows = 1000;
  work.test_rows = 500;
  work.seed = 9;
  const auto data = open_click_data(work);
  const GeneratedClicks world({.count = 1500, .seed = 9});
  EXPECT_EQ(*data.train.size(), 1000U);
  EXPECT_EQ(*data.test.size(), 500U);
  EXPECT_EQ(*data.train.best_probability(7), world.probability(7));
  EXPECT_EQ(*data.test.best_probability(7), world.probability(1007));
  EXPECT_TRUE(
      std::get<1>(data.test.get_batch({3, 4}).data).equal(std::get<1>(world.get_batch({1003, 1004}).data)));
}

TEST(ClickData, AFileWithoutRowsForBothIsRefusedByName) {
  const TemporaryFolder folder;
  CtrWork work;
  work.data = {folder.path() + "/clicks.txt"};
  write_text(work.data[0], rows(1, 1));
  EXPECT_THAT([&] { open_click_data(work); },
              ThrowsMessage<DataError>(
                  HasSubstr(work.data[0] + ": expected rows to train on and to test on, but it has 1")));
  write_text(work.data[0], rows(1, 5) + "x\n");
  EXPECT_THAT([&] { open_click_data(work); }, ThrowsMessage<DataError>(HasSubstr("line 6: ")));
}

}  // namespace
}  // namespace lockstep::apps
