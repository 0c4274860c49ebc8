#include "lockstep/apps/train_images/data/data_location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using ::testing::Property;
using testing::TemporaryFolder;
using ::testing::Throws;

constexpr const char* kVariable = "LOCKSTEP_MNIST_DIR";

/// Works in an empty folder with LOCKSTEP_MNIST_DIR unset; restores both at the end.
class Surroundings {
 public:
  Surroundings() : previous_folder_(std::filesystem::current_path()) {
    if (const char* value = std::getenv(kVariable)) previous_value_ = value;
    std::filesystem::current_path(folder_.path());
    unsetenv(kVariable);
  }
  ~Surroundings() {
    std::filesystem::current_path(previous_folder_);
    if (previous_value_) {
      setenv(kVariable, previous_value_->c_str(), 1);
    } else {
      unsetenv(kVariable);
    }
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

  const TemporaryFolder& folder() const { return folder_; }
  void name(const std::string& path) const { setenv(kVariable, path.c_str(), 1); }

 private:
  TemporaryFolder folder_;
  std::filesystem::path previous_folder_;
  std::optional<std::string> previous_value_;
};

/// MNIST's four files below `where`, with two 2x2 images per split.
void write_mnist_files(const TemporaryFolder& folder, const std::string& where) {
  const Bytes images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
  const Bytes labels{0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
  for (const std::string split : {"train", "t10k"}) {
    folder.write(where + split + "-images-idx3-ubyte", images);
    folder.write(where + split + "-labels-idx1-ubyte", labels);
  }
}

void write_zip(const TemporaryFolder& folder, const std::string& name) {
  const Bytes image = testing::encode_png(testing::make_image(2, 2, 1));
  folder.write(name, testing::make_zip({{"train/0/a.png", image}, {"test/0/a.png", image}}));
}

TEST(DataLocation, AutoTakesTheFolderThatTheVariableNames) {
  const Surroundings here;
  const TemporaryFolder elsewhere;
  write_mnist_files(elsewhere, "");
  here.name(elsewhere.path());
  const auto location = locate_data("auto");
  EXPECT_EQ(location.kind, DataKind::kMnistFiles);
  EXPECT_EQ(location.path, elsewhere.path());
  EXPECT_EQ(location.why, elsewhere.path() + ", named by LOCKSTEP_MNIST_DIR");
  EXPECT_EQ(location.hint, "");
}

TEST(DataLocation, AutoTakesAZipThatTheVariableNames) {
  const Surroundings here;
  const TemporaryFolder elsewhere;
  write_zip(elsewhere, "digits.zip");
  here.name(elsewhere.path() + "/digits.zip");
  const auto location = locate_data("auto");
  EXPECT_EQ(location.kind, DataKind::kClassFolders);
  EXPECT_EQ(location.path, elsewhere.path() + "/digits.zip");
}

TEST(DataLocation, AutoTakesMnistsFilesInThisFolder) {
  const Surroundings here;
  write_mnist_files(here.folder(), "data/mnist/");
  const auto location = locate_data("auto");
  EXPECT_EQ(location.kind, DataKind::kMnistFiles);
  EXPECT_EQ(location.path, "data/mnist");
  EXPECT_EQ(location.why, "data/mnist, found in this folder");
  EXPECT_EQ(location.hint, "");
}

TEST(DataLocation, AutoTakesClassFoldersInThisFolder) {
  const Surroundings here;
  for (const std::string part : {"train", "test"}) {
    here.folder().write("data/mnist/" + part + "/0/a.png", testing::encode_png(testing::make_image(2, 2, 1)));
  }
  const auto location = locate_data("auto");
  EXPECT_EQ(location.kind, DataKind::kClassFolders);
  EXPECT_EQ(location.path, "data/mnist");
}

TEST(DataLocation, AutoTakesTheZipInThisFolder) {
  const Surroundings here;
  write_zip(here.folder(), "mnist.zip");
  const auto location = locate_data("auto");
  EXPECT_EQ(location.kind, DataKind::kClassFolders);
  EXPECT_EQ(location.path, "mnist.zip");
  EXPECT_EQ(location.why, "mnist.zip, found in this folder");
  EXPECT_EQ(location.hint, "");
}

TEST(DataLocation, OfParquetFilesIsAUriAPatternOrAFolderOfThem) {
  const TemporaryFolder folder;
  folder.write("all/a.parquet", Bytes{});
  folder.write("all/train.txt", Bytes{});
  folder.write("named/train-0.parquet", Bytes{});
  folder.write("named/validation-0.parquet", Bytes{});
  folder.write("parts/train/0.pq", Bytes{});
  folder.write("parts/test/0.parquet", Bytes{});
  const auto in = [&](const std::string& name) {
    return (std::filesystem::path(folder.path()) / name).string();
  };
  const std::vector<std::vector<std::string>> cases{
      {"s3://bucket/images/*.parquet", "s3://bucket/images/*.parquet", ""},
      {"there/*.parquet", "there/*.parquet", ""},
      {in("all"), in("all/*.parquet"), ""},
      {in("named"), in("named/train*.parquet"), in("named/validation*.parquet")},
      {in("parts"), in("parts/train"), in("parts/test/*.parquet")},
      {in("parts/train"), in("parts/train"), ""}};
  for (const auto& paths : cases) {
    const DataLocation location = locate_data(paths[0]);
    EXPECT_EQ(location.kind, DataKind::kParquet) << paths[0];
    EXPECT_EQ(location.path, paths[1]);
    EXPECT_EQ(location.test_path, paths[2]);
    // The places that are recorded with a run name the same files.
    EXPECT_EQ(locate_data(location.path).path, location.path);
  }
  EXPECT_THAT(
      [&] { locate_data(folder.path()); },
      Throws<DataError>(Property(&DataError::what, HasSubstr("its folders are all/, named/, parts/"))));
}

TEST(DataLocation, AutoPrefersTheVariableToTheFolderAndTheFolderToTheZip) {
  const Surroundings here;
  write_zip(here.folder(), "mnist.zip");
  EXPECT_EQ(locate_data("auto").path, "mnist.zip");
  here.folder().write("data/mnist/notes.txt", testing::to_bytes("neither files nor folders of images"));
  EXPECT_EQ(locate_data("auto").path, "mnist.zip") << "a folder without data is passed over";
  write_mnist_files(here.folder(), "data/mnist/");
  EXPECT_EQ(locate_data("auto").path, "data/mnist");
  const TemporaryFolder elsewhere;
  write_mnist_files(elsewhere, "");
  here.name(elsewhere.path());
  EXPECT_EQ(locate_data("auto").path, elsewhere.path());
  here.name("");
  EXPECT_EQ(locate_data("auto").path, "data/mnist") << "an empty variable counts as unset";
}

TEST(DataLocation, AutoDrawsDigitsWhereNothingLiesAndSaysHowToGetTheRealOnes) {
  const Surroundings here;
  const auto location = locate_data("auto");
  EXPECT_EQ(location.kind, DataKind::kGenerated);
  EXPECT_EQ(location.path, "");
  EXPECT_EQ(location.why,
            "generated digits: LOCKSTEP_MNIST_DIR is not set, and there is no data/mnist or mnist.zip here");
  EXPECT_THAT(location.hint,
              AllOf(HasSubstr("data/mnist"), HasSubstr("--data"), HasSubstr("train-images-idx3-ubyte.gz"),
                    HasSubstr("t10k-labels-idx1-ubyte.gz")));
}

TEST(DataLocation, AutoRefusesAVariableThatNamesNoDataWhateverElseThereIs) {
  const Surroundings here;
  write_mnist_files(here.folder(), "data/mnist/");
  const TemporaryFolder empty;
  here.name(empty.path());
  EXPECT_THAT([] { locate_data("auto"); },
              Throws<DataError>(Property(
                  &DataError::what, AllOf(HasSubstr("LOCKSTEP_MNIST_DIR=" + empty.path() + ": expected "),
                                          HasSubstr("the folder has neither")))));
}

TEST(DataLocation, TakesGeneratedDigitsAndPathsAsAskedForWhateverElseThereIs) {
  const Surroundings here;
  write_mnist_files(here.folder(), "data/mnist/");
  const auto generated = locate_data("generated");
  EXPECT_EQ(generated.kind, DataKind::kGenerated);
  EXPECT_EQ(generated.why, "generated digits, as asked for");
  EXPECT_EQ(generated.hint, "");
  write_zip(here.folder(), "other.zip");
  const auto named = locate_data("other.zip");
  EXPECT_EQ(named.kind, DataKind::kClassFolders);
  EXPECT_EQ(named.path, "other.zip");
  EXPECT_EQ(named.why, "other.zip");
}

/// A zip with files of these names.
std::string write_zip_of(const TemporaryFolder& folder, const std::vector<std::string>& names) {
  std::vector<testing::ArchiveFile> files;
  for (const auto& name : names) files.push_back({name, Bytes{1}});
  return folder.write("pets.zip", testing::make_zip(files));
}

void expect_refused(const std::string& path, const std::string& text) {
  EXPECT_THAT([&] { locate_data(path); },
              Throws<DataError>(Property(
                  &DataError::what, AllOf(HasSubstr("--data " + path + ": expected "), HasSubstr(text)))));
}

TEST(DataLocation, LooksIntoTheOnlyFolderOfAZipOrFolder) {
  const TemporaryFolder folder;
  const std::string zip = write_zip_of(folder, {"pets/train/cat/a.png", "pets/test/cat/a.png",
                                                "__MACOSX/pets/train/cat/._a.png", "README.txt"});
  for (const std::string part : {"train", "test"})
    folder.write("unpacked/pets/" + part + "/cat/a.png", Bytes{1});
  for (const std::string& path : {zip, folder.path() + "/unpacked"}) {
    const auto location = locate_data(path);
    EXPECT_EQ(location.kind, DataKind::kClassFolders);
    EXPECT_EQ(location.path, path + "/pets");
    EXPECT_EQ(location.why, path + "/pets");
    EXPECT_EQ(locate_data(path + "/pets").path, path + "/pets");
  }
}

TEST(DataLocation, SaysWhichFoldersThereAreInsteadOfTrainAndTest) {
  const TemporaryFolder folder;
  expect_refused(write_zip_of(folder, {"cat/a.png", "dog/a.png"}), "but its folders are cat/, dog/");
  expect_refused(write_zip_of(folder, {"pets/cat/a.png", "pets/dog/a.png"}), "but its folders are pets/");
  expect_refused(write_zip_of(folder, {"a/train/a.png", "b/train/a.png", "c/x", "d/x", "e/x", "f/x"}),
                 "its folders are a/, b/, c/, d/, e/, ...");
  const std::string zip = write_zip_of(folder, {"pets/train/cat/a.png", "pets/val/cat/a.png"});
  expect_refused(zip, "there is no " + zip + "/pets/test; its folders are train/, val/");
  expect_refused(write_zip_of(folder, {"a.png"}), "the folder has neither");
}

TEST(DataLocation, AutoRefusesAZipOfTheRightNameWithOtherContent) {
  const Surroundings here;
  here.folder().write("mnist.zip", testing::make_zip({{"notes/a.txt", Bytes{1}}}));
  EXPECT_THAT([] { locate_data("auto"); },
              Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("mnist.zip: expected "),
                                                                 HasSubstr("its folders are notes/")))));
}

TEST(DataLocation, SuggestsTheWordThatWasMeantForAPathThatDoesNotExist) {
  const Surroundings here;
  EXPECT_THAT([] { locate_data("generatd"); },
              Throws<DataError>(Property(
                  &DataError::what, AllOf(HasSubstr("--data generatd: expected "),
                                          HasSubstr("no such file or folder (did you mean generated?)")))));
}

TEST(DataLocation, SaysWhyAPathCannotBeLookedAt) {
  const Surroundings here;
  EXPECT_THAT(
      [] { locate_data(std::string(5000, 'x')); },
      Throws<DataError>(Property(&DataError::what, HasSubstr("it cannot be looked at: File name too long"))));
}

}  // namespace
}  // namespace lockstep::apps
