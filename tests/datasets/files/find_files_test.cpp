#include "lockstep/datasets/files/internal/find_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

class FindFilesTest : public ::testing::Test {
 protected:
  FindFilesTest() {
    for (const std::string name : {"day_10", "day_2", "day_1.gz", "_SUCCESS", ".hidden", "more/day_3"})
      folder_.write(name, "x");
  }
  std::string at(const std::string& name) const { return folder_.file(name); }

  const TemporaryFolder folder_;
};

TEST_F(FindFilesTest, AFolderStandsForItsFilesInTheOrderOfTheirNumbers) {
  EXPECT_THAT(find_data_files({folder_.path()}), ElementsAre(at("day_1.gz"), at("day_2"), at("day_10")));
}

TEST_F(FindFilesTest, PlacesKeepTheirOrderAndNoFileComesTwice) {
  EXPECT_THAT(find_data_files({at("more/day_3"), at("day_?"), at("day_*"), at("more/../day_2")}),
              ElementsAre(at("more/day_3"), at("day_2"), at("day_1.gz"), at("day_10")));
}

TEST_F(FindFilesTest, AFileWhoseNameLooksLikeAPatternIsTaken) {
  folder_.write("day_[2]", "x");
  EXPECT_THAT(find_data_files({at("day_[2]")}), ElementsAre(at("day_[2]")));
}

TEST_F(FindFilesTest, AFileThatIsNotThereIsLeftToItsReader) {
  EXPECT_THAT(find_data_files({at("none")}), ElementsAre(at("none")));
}

TEST_F(FindFilesTest, AnEmptyFolderAndAPatternWithoutAMatchAreRefusedByName) {
  EXPECT_THAT(
      [&] {
        find_data_files({at("day_2"), at("night_*")});
      },
      ThrowsMessage<DataError>(HasSubstr(at("night_*") + ": expected files that match")));
  EXPECT_THAT([&] { find_data_files({at("mor*")}); },  // a folder only
              ThrowsMessage<DataError>(HasSubstr(at("mor*"))));
  std::filesystem::create_directory(at("empty"));
  EXPECT_THAT([&] { find_data_files({at("empty")}); },
              ThrowsMessage<DataError>(HasSubstr(at("empty") + ": expected files in this folder")));
}

TEST(NaturalLess, ComparesNumbersByTheirValue) {
  const std::vector<std::string> sorted{
      "", "a", "a1", "a1b", "a01c", "a2", "a10", "a10.gz", "a123456789012345678901", "b"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j)
      EXPECT_EQ(natural_less(sorted[i], sorted[j]), i < j) << sorted[i] << " and " << sorted[j];
  }
  EXPECT_NE(natural_less("a1", "a01"), natural_less("a01", "a1"));
}

}  // namespace
}  // namespace lockstep
