#include "lockstep/datasets/clicks/click_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/datasets/files/compressed_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

class ClickFilesTest : public ::testing::Test {
 protected:
  std::string rows(size_t first, size_t count) const {
    std::string text;
    for (size_t i = first; i < first + count; ++i) text += click_row_text(clicks_.row(i)) + "\n";
    return text;
  }
  void expect_rows(const ClickFiles& files, const std::vector<size_t>& indices) const {
    const auto batch = files.get_batch(indices);
    const auto expected = clicks_.get_batch(indices);
    EXPECT_TRUE(std::get<0>(batch.data).equal(std::get<0>(expected.data)));
    EXPECT_TRUE(std::get<1>(batch.data).equal(std::get<1>(expected.data)));
    EXPECT_TRUE(batch.target.equal(expected.target));
  }
  const GeneratedClicks clicks_;
  const TemporaryFolder folder_;
};

TEST_F(ClickFilesTest, HasTheIdentityOfItsRowsHoweverTheyAreStored) {
  folder_.write("whole", rows(0, 500));
  folder_.write("parts/1", rows(0, 200));
  folder_.write("parts/2.gz", testing::gzip_of(rows(200, 300)));
  folder_.write("others", rows(1, 500));
  const auto identity = [&](const std::string& name) {
    return ClickFiles({.paths = {folder_.file(name)}}).identity();
  };
  EXPECT_THAT(identity("whole"), HasSubstr("click logs of 500 rows (checksum "));
  EXPECT_EQ(identity("whole"), identity("parts"));
  EXPECT_NE(identity("whole"), identity("others"));
}

TEST_F(ClickFilesTest, GivesTheRowsOfAllFilesOneAfterAnother) {
  folder_.write("day_10", rows(700, 300));
  folder_.write("day_9.gz", testing::gzip_of(rows(100, 600)));
  folder_.write("day_1", rows(0, 100));
  const ClickFiles files({.paths = {folder_.path()}});
  EXPECT_THAT(files.paths(),
              ElementsAre(folder_.file("day_1"), folder_.file("day_9.gz"), folder_.file("day_10")));
  ASSERT_EQ(files.size(), 1000U);
  std::vector<size_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  expect_rows(files, all);
  expect_rows(files, {999, 0, 99, 100, 101, 699, 700, 700, 5});
  // The index and the copy of the compressed file do not count as files of the folder.
  expect_rows(ClickFiles({.paths = {folder_.path()}}), all);
}

TEST_F(ClickFilesTest, NamesTheFirstMalformedRowAndCountsAll) {
  folder_.write("a", rows(0, 5));
  folder_.write("b", rows(5, 5) + "no\n");
  folder_.write("c", "no\nno\n" + rows(10, 5));
  const ClickFiles files({.paths = {folder_.file("[abc]")}, .skips_malformed = true});
  EXPECT_EQ(files.num_malformed(), 3);
  EXPECT_THAT(files.first_malformed(), HasSubstr(folder_.file("b") + ": line 6: field 1"));
  expect_rows(files, {14, 10, 9, 0});
  EXPECT_THAT([&] { ClickFiles({.paths = {folder_.path()}}); },
              ThrowsMessage<DataError>(HasSubstr(folder_.file("b") + ": line 6")));
}

TEST_F(ClickFilesTest, RefusesAPatternWithoutAMatchAndAnIndexThatIsTooLarge) {
  EXPECT_THAT([&] { ClickFiles({.paths = {folder_.file("*.tsv")}}); },
              ThrowsMessage<DataError>(HasSubstr(folder_.file("*.tsv"))));
  folder_.write("a", rows(0, 5));
  folder_.write("b", rows(5, 5));
  const ClickFiles files({.paths = {folder_.path()}});
  EXPECT_THAT(
      [&] {
        files.get_batch({9, 10});
      },
      ThrowsMessage<std::invalid_argument>("[ClickFiles] expected indices below 10, but got 10"));
}

}  // namespace
}  // namespace lockstep
