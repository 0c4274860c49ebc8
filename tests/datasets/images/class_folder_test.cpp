#include "lockstep/datasets/images/internal/class_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using testing::TemporaryFolder;
using ::testing::Throws;

std::vector<std::string> names_of(const ClassFolder& folder) {
  std::vector<std::string> names;
  for (const ClassFolderFile& file : folder.files) {
    const std::string name = display_name(folder, file);
    names.push_back(name.substr(name.rfind('/') + 1) + ":" + folder.classes[static_cast<size_t>(file.label)]);
  }
  return names;
}

void expect_refused(const std::string& path, const std::string& text) {
  EXPECT_THAT([&] { list_class_folder(path); },
              Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr(path), HasSubstr(text)))));
}

TEST(ClassFolder, ListsDiskAndArchiveInTheSameOrder) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = {
      "dog/2.png",      "dog/10.PNG",    "cat/b.jpg",      "cat/a.jpeg",  "cat/note.txt",
      "cat/deep/x.png", ".hidden/x.png", "cat/._a.png",    "top.png",     "__MACOSX/x.png",
      "cat/c.WebP",     "cat/Thumbs.db", "dog/moving.gif", "desktop.ini", "cat/.git/x.png"};
  std::vector<testing::ArchiveFile> archive;
  for (const std::string& file : files) {
    folder.write("tree/" + file, Bytes{1});
    archive.push_back({"data/train/" + file, Bytes{1}});
  }
  folder.write("packed.zip", testing::make_zip(archive));
  for (const char* path : {"/tree", "/tree/", "/packed.zip/data/train", "/packed.zip/data/train/"}) {
    const ClassFolder listed = list_class_folder(folder.path() + path);
    EXPECT_THAT(listed.classes, ElementsAre("cat", "dog")) << path;
    EXPECT_THAT(names_of(listed),
                ElementsAre("a.jpeg:cat", "b.jpg:cat", "c.WebP:cat", "10.PNG:dog", "2.png:dog"))
        << path;
    EXPECT_THAT(listed.ignored.names, ElementsAre("cat/deep/", "cat/note.txt", "dog/moving.gif", "top.png"))
        << path;
  }
}

TEST(ClassFolder, ReadsFilesFromDiskAndArchive) {
  const TemporaryFolder folder;
  folder.write("tree/a/1.png", Bytes{1, 2, 3});
  folder.write("packed.zip", testing::make_zip({{"a/1.png", Bytes{1, 2, 3}}}));
  for (const char* path : {"/tree", "/packed.zip"}) {
    const ClassFolder listed = list_class_folder(folder.path() + path);
    EXPECT_EQ(ClassFolderReader(listed).read(listed.files.at(0)), (Bytes{1, 2, 3})) << path;
  }
}

TEST(ClassFolder, RefusesAPathThatIsNotThere) {
  const TemporaryFolder folder;
  expect_refused(folder.path() + "/missing", "there is none");
  folder.write("packed.zip", testing::make_zip({{"a/1.png", Bytes{1}}}));
  expect_refused(folder.path() + "/packed.zip/missing", "class folders: expected at least one");
  expect_refused("", "there is none");
}

TEST(ClassFolder, RefusesAFolderWithoutImages) {
  const TemporaryFolder folder;
  expect_refused(folder.path(), "class folders: expected at least one");
  folder.write("loose.png", Bytes{1});
  expect_refused(folder.path(), "class folders: expected at least one");
}

TEST(ClassFolder, NamesAnEmptyClass) {
  const TemporaryFolder folder;
  folder.write("tree/full/1.png", Bytes{1});
  folder.write("tree/void/readme.txt", Bytes{1});
  expect_refused(folder.path() + "/tree", "class 'void'");
  folder.write("packed.zip", testing::make_zip({{"full/1.png", Bytes{1}}, {"void/", {}}}));
  expect_refused(folder.path() + "/packed.zip", "class 'void'");
}

/// Expects the same message for a folder on disk and for an archive, `tree` standing for either.
void expect_refused_alike(const std::vector<std::string>& files, const std::string& message) {
  const TemporaryFolder folder;
  std::vector<testing::ArchiveFile> archive;
  for (const std::string& file : files) {
    folder.write("tree/" + file, Bytes{1});
    archive.push_back({file, Bytes{1}});
  }
  folder.write("packed.zip", testing::make_zip(archive));
  for (const std::string& path : {folder.path() + "/tree", folder.path() + "/packed.zip"}) {
    std::string expected = message;
    for (size_t at = expected.find("tree"); at != std::string::npos;
         at = expected.find("tree", at + path.size()))
      expected.replace(at, 4, path);
    EXPECT_THAT([&] { list_class_folder(path); }, Throws<DataError>(Property(&DataError::what, expected)));
  }
}

TEST(ClassFolder, NamesThePathWhoseFoldersAreTheClasses) {
  expect_refused_alike(
      {"pets/cat/1.png", "pets/notes.txt"},
      "tree: class 'pets': expected at least one .png, .jpg, .jpeg or .webp image in its folder, but "
      "got none, but images in folders within it, such as pets/cat/1.png; to use these folders as "
      "the classes, pass tree/pets");
  expect_refused_alike(
      {"test/cat/1.png", "train/cat/1.png"},
      "tree: class 'test': expected at least one .png, .jpg, .jpeg or .webp image in its folder, but "
      "got none, but images in folders within it, such as test/cat/1.png; to use these folders as "
      "the classes, pass tree/test");
}

TEST(ClassFolder, SaysWhatAClassHoldsInsteadOfImages) {
  expect_refused_alike(
      {"cat/1.png", "dog/small/1.png"},
      "tree: class 'dog': expected at least one .png, .jpg, .jpeg or .webp image in its folder, but "
      "got none, but images in folders within it, such as dog/small/1.png");
  expect_refused_alike(
      {"cat/1.png", "cat/2.txt", "dog/1.gif", "dog/2.gif"},
      "tree: class 'dog': expected at least one .png, .jpg, .jpeg or .webp image in its folder, but "
      "got none, but 2 .gif: dog/1.gif, dog/2.gif");
}

TEST(ClassFolder, SaysWhatIsThereInsteadOfClasses) {
  expect_refused_alike(
      {"1.png", "2.png"},
      "tree: class folders: expected at least one, as in <path>/<class>/<image>.png, but got none, "
      "but 2 .png: 1.png, 2.png");
  const TemporaryFolder folder;
  folder.write("packed.zip", testing::make_zip({{"pets/train/cat/1.png", Bytes{1}}, {"more/x", Bytes{1}}}));
  expect_refused(folder.path() + "/packed.zip/train", "but got none; the archive's folders are more, pets");
}

TEST(ClassFolder, ListsTheFoldersOfDiskAndArchive) {
  const TemporaryFolder folder;
  std::vector<testing::ArchiveFile> archive;
  for (const std::string file :
       {"pets/train/1.png", "pets/test/cat/1.png", "pets/.git/x", "__MACOSX/x", "a.png"}) {
    folder.write("tree/" + file, Bytes{1});
    archive.push_back({file, Bytes{1}});
  }
  folder.write("packed.zip", testing::make_zip(archive));
  for (const std::string& path : {folder.path() + "/tree", folder.path() + "/packed.zip"}) {
    EXPECT_THAT(list_folders(path), ElementsAre("pets")) << path;
    EXPECT_THAT(list_folders(path + "/pets"), ElementsAre("test", "train")) << path;
    EXPECT_THAT(list_folders(path + "/pets/train"), ElementsAre()) << path;
  }
  EXPECT_THROW(list_folders(folder.path() + "/missing"), DataError);
}

TEST(ClassFolder, NamesAFileThatIsGone) {
  const TemporaryFolder folder;
  const std::string path = folder.write("tree/a/1.png", Bytes{1});
  const ClassFolder listed = list_class_folder(folder.path() + "/tree");
  std::filesystem::remove(path);
  EXPECT_THAT([&] { ClassFolderReader(listed).read(listed.files.at(0)); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("a/1.png: cannot open"))));
}

}  // namespace
}  // namespace lockstep
