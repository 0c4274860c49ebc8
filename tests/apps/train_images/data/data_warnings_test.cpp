#include "lockstep/apps/train_images/data/data_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/tests/support/test_files.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::TemporaryFolder;

std::vector<std::string> warnings_of(const TemporaryFolder& folder) {
  const DataLocation location{.kind = DataKind::kClassFolders, .path = folder.path(), .why = "", .hint = ""};
  return data_warnings(location, load_images(location, {}));
}

void write_images(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  for (const auto& name : names) folder.write(name, testing::encode_png(testing::make_image(28, 28, 1)));
}

TEST(DataWarnings, AreNoneForImagesOfTwoClassesOrGeneratedOnes) {
  const TemporaryFolder folder;
  write_images(folder, {"train/cat/a.png", "train/dog/a.png", "test/cat/a.png", "test/dog/a.png"});
  EXPECT_THAT(warnings_of(folder), IsEmpty());
  EXPECT_THAT(data_warnings({}, load_images({}, {.limit_train = 4, .limit_test = 4})), IsEmpty());
}

TEST(DataWarnings, NameAndCountTheFilesThatAreNotRead) {
  const TemporaryFolder folder;
  write_images(folder, {"train/cat/a.png", "train/dog/a.png", "test/cat/a.png", "test/dog/a.png",
                        "train/cat/more/b.png"});
  for (const std::string name : {"train/dog/1.gif", "train/dog/2.gif", "train/dog/3.bmp", "test/notes.txt"})
    folder.write(name, Bytes{1});
  EXPECT_THAT(warnings_of(folder),
              ElementsAre(AllOf(StartsWith(folder.path() + "/train: ignored 2 .gif, 1 .bmp, 1 folder: "
                                                           "cat/more/, dog/1.gif, dog/2.gif, ...; only .png"),
                                HasSubstr(".webp")),
                          StartsWith(folder.path() + "/test: ignored 1 .txt: notes.txt;")));
}

}  // namespace
}  // namespace lockstep::apps
