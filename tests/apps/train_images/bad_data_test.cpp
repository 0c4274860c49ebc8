// Unusable data: the program ends with exit code 3 and names the problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "lockstep/tests/apps/train_images/trainings.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProcessResult train_on(const std::string& data, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{
      "--data", data, "--epochs", "1", "--steps-per-epoch", "1", "--threads", "1", "--global-batch-size",
      "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return train_images(arguments);
}

void expect_refused(const std::string& data, const std::vector<std::string>& parts) {
  const auto result = train_on(data);
  EXPECT_EQ(result.exit_code, 3) << result.error;
  EXPECT_THAT(result.error, StartsWith("train_images: error: "));
  EXPECT_EQ(result.error.find('\n'), result.error.size() - 1) << result.error;
  for (const auto& part : parts) EXPECT_THAT(result.error, HasSubstr(part));
}

Bytes png(uint64_t seed = 0) {
  return encode_png(make_image(28, 28, 1, seed));
}

/// train/ and test/ with two classes of two images.
void write_class_folders(const TemporaryFolder& folder) {
  for (const std::string part : {"train/", "test/"}) {
    for (const std::string name : {"0/a.png", "0/b.png", "1/a.png", "1/b.png"})
      folder.write(part + name, png());
  }
}

std::vector<ArchiveFile> archive_files() {
  std::vector<ArchiveFile> files;
  for (const std::string name : {"train/0/a.png", "train/1/a.png", "test/0/a.png", "test/1/a.png"})
    files.push_back({name, png()});
  return files;
}

std::string write_archive(const TemporaryFolder& folder, const std::vector<RawZipEntry>& more) {
  std::vector<RawZipEntry> entries;
  for (const auto& file : archive_files()) entries.push_back(stored_entry(file.name, file.bytes));
  entries.insert(entries.end(), more.begin(), more.end());
  return folder.write("digits.zip", make_raw_zip(entries));
}

/// An IDX file of bytes, each of them 1.
Bytes idx(const std::vector<uint32_t>& dimensions, size_t count, uint8_t type = 0x08) {
  Bytes bytes{0, 0, type, static_cast<uint8_t>(dimensions.size())};
  for (const uint32_t size : dimensions) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(size >> shift));
  }
  bytes.resize(bytes.size() + count, 1);
  return bytes;
}

constexpr const char* kTrainImages = "train-images-idx3-ubyte";
constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";

/// MNIST's files with four examples per split.
void write_mnist(const TemporaryFolder& folder) {
  for (const std::string split : {"train", "t10k"}) {
    folder.write(split + "-images-idx3-ubyte", idx({4, 28, 28}, 4 * 28 * 28));
    folder.write(split + "-labels-idx1-ubyte", idx({4}, 4));
  }
}

TEST(BadData, IsToldFromGoodData) {
  const TemporaryFolder folders;
  write_class_folders(folders);
  const TemporaryFolder files;
  write_mnist(files);
  const TemporaryFolder archive;
  for (const auto& data : {folders.path(), files.path(), write_archive(archive, {})}) {
    const auto result = train_on(data);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(epochs_of(result).size(), 1) << result.out;
  }
}

TEST(BadData, NamesADamagedPng) {
  const Bytes good = png();
  Bytes checksum = good;
  checksum[checksum.size() / 2] ^= 0x10;
  Bytes magic = good;
  magic[1] = 'J';
  Bytes huge = good;
  huge[16] = huge[20] = 0x7f;  // width and height; their checksum is wrong too
  Bytes empty = good;
  for (size_t byte = 16; byte < 24; ++byte) empty[byte] = 0;
  for (const Bytes& bytes : {Bytes(good.begin(), good.begin() + 40), Bytes(good.begin(), good.end() - 16),
                             Bytes(), checksum, magic, huge, empty}) {
    const TemporaryFolder folder;
    write_class_folders(folder);
    folder.write("train/1/bad.png", bytes);
    expect_refused(folder.path(), {folder.path() + "/train/1/bad.png"});
  }
}

TEST(BadData, LeavesDamagedImagesOutAndListsThemWhereAskedTo) {
  const TemporaryFolder folder;
  const std::string data = folder.path() + "/data";
  for (const std::string part : {"data/train/", "data/test/"}) {
    for (const std::string name : {"0/a.png", "1/a.png"}) folder.write(part + name, png());
  }
  folder.write("data/train/1/bad.png", to_bytes("no image"));
  folder.write("data/test/0/bad.png", Bytes());
  const auto refused = train_on(data);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(
      refused.error,
      AllOf(HasSubstr(data + "/train/1/bad.png: signature: expected that of a PNG, JPEG or WebP image"),
            HasSubstr("; --skip-bad leaves out images that cannot be read\n")));

  const std::string run = folder.path() + "/run";
  const auto result = train_on(data, {"--skip-bad", "--run-dir", run});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("images           2 to train on, 2 to test on\n"));
  EXPECT_THAT(result.out, HasSubstr("skipped          2 damaged images\n                 " + data +
                                    "/train/1/bad.png: signature: "));
  EXPECT_THAT(result.out, HasSubstr("all are listed in " + run + "/skipped_images.txt\n"));
  std::ifstream list(run + "/skipped_images.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(list, line);) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre(StartsWith(data + "/train/1/bad.png: signature: "),
                                 StartsWith(data + "/test/0/bad.png: signature: ")));
}

TEST(BadData, WarnsOfFilesThatAreNotRead) {
  const TemporaryFolder folder;
  write_class_folders(folder);
  for (const std::string name : {"train/0/1.gif", "train/1/2.bmp", "train/1/3.gif"})
    folder.write(name, png());
  const std::string warning = "train_images: warning: " + folder.path() +
                              "/train: ignored 2 .gif, 1 .bmp: 0/1.gif, 1/2.bmp, 1/3.gif; only .png, ";
  EXPECT_THAT(train_on(folder.path()).error, HasSubstr(warning));
  EXPECT_EQ(train_on(folder.path(), {"--quiet"}).error, "");
}

TEST(BadData, IsNoZipWithAFolderAroundItsClasses) {
  const TemporaryFolder folder;
  std::vector<ArchiveFile> files;
  for (const auto& file : archive_files()) files.push_back({"pets/" + file.name, file.bytes});
  const auto result = train_on(folder.write("pets.zip", make_zip(files)));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("data             " + folder.path() + "/pets.zip/pets\n"));
  EXPECT_THAT(result.out, HasSubstr("images           2 to train on, 2 to test on\n"));
}

TEST(BadData, NamesTheFieldOfADamagedIdxFile) {
  struct Case {
    const char* file;
    Bytes bytes;
    const char* part;
  };
  Bytes magic = idx({4, 28, 28}, 4 * 28 * 28);
  magic[0] = 1;
  const std::vector<Case> cases{
      {kTrainImages, magic, "magic"},
      {kTrainImages, idx({4, 28, 28}, 4 * 28 * 28, 0x0d), "type"},
      {kTrainImages, idx({4}, 4), "dimensions"},
      {kTrainImages, idx({0xffffffff, 0xffffffff, 0xffffffff}, 10), "dimensions"},
      {kTrainImages, idx({5, 28, 28}, 4 * 28 * 28), "expected 3920 bytes (5 x 28 x 28), but got"},
      {kTrainImages, idx({3, 28, 28}, 4 * 28 * 28), "expected 2352 bytes (3 x 28 x 28), but got more"},
      {kTrainLabels, idx({3}, 3), "number of labels: expected 4"},
      {kTrainLabels, Bytes{0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 10, 3}, "label 2: expected 0 to 9, but got 10"},
      {kTrainImages, Bytes(), ""},
  };
  for (const auto& [file, bytes, part] : cases) {
    const TemporaryFolder folder;
    write_mnist(folder);
    folder.write(file, bytes);
    expect_refused(folder.path(), {folder.path() + "/" + file, part, "expected"});
  }
}

TEST(BadData, NamesADamagedGzipFile) {
  for (const Bytes& bytes : {to_bytes("no gzip"), Bytes{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff}}) {
    const TemporaryFolder folder;
    write_mnist(folder);
    std::filesystem::remove(folder.path() + "/" + kTrainImages);
    const std::string file = folder.write(std::string(kTrainImages) + ".gz", bytes);
    expect_refused(folder.path(), {file});
  }
}

/// Opening a pipe in the usual way would wait forever.
TEST(BadData, NamesAPipeInPlaceOfAFile) {
  const TemporaryFolder folder;
  const auto put_pipe = [&](const std::string& name) {
    std::filesystem::remove(folder.file(name));
    ASSERT_EQ(::mkfifo(folder.file(name).c_str(), 0600), 0);
  };
  put_pipe("pipe.zip");
  expect_refused(folder.file("pipe.zip"), {"pipe.zip", "it is a named pipe"});
  write_mnist(folder);
  put_pipe(kTrainLabels);
  expect_refused(folder.path(), {folder.file(kTrainLabels), "it is a named pipe"});
  const TemporaryFolder images;
  write_class_folders(images);
  ASSERT_EQ(::mkfifo(images.file("train/1/c.png").c_str(), 0600), 0);
  expect_refused(images.path(), {images.file("train/1/c.png"), "it is a named pipe"});
}

TEST(BadData, NamesAMissingIdxFile) {
  const TemporaryFolder folder;
  write_mnist(folder);
  std::filesystem::remove(folder.path() + "/t10k-labels-idx1-ubyte");
  expect_refused(folder.path(), {folder.path(), "t10k-labels-idx1-ubyte"});
}

TEST(BadData, NamesAZipEntryThatLeadsElsewhere) {
  for (const std::string name : {"../escaped.png", "train/0/../../../escaped.png", "/escaped.png"}) {
    const TemporaryFolder folder;
    expect_refused(write_archive(folder, {stored_entry(name, png())}), {"digits.zip", name});
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/../escaped.png"));
  }
}

TEST(BadData, NamesALinkInAZip) {
  const TemporaryFolder folder;
  RawZipEntry link = stored_entry("train/0/link.png", to_bytes("/etc/passwd"));
  link.unix_mode = 0120777;
  expect_refused(write_archive(folder, {link}), {"digits.zip", "train/0/link.png"});
}

TEST(BadData, NamesADuplicateInAZip) {
  const TemporaryFolder folder;
  expect_refused(write_archive(folder, {stored_entry("train/0/a.png", png(1))}),
                 {"digits.zip", "train/0/a.png"});
}

TEST(BadData, NamesABombInAZip) {
  // A kilobyte that claims to become a gigabyte.
  const TemporaryFolder folder;
  RawZipEntry bomb = stored_entry("train/0/bomb.png", Bytes(1024, 0));
  bomb.size = uint64_t{1} << 30;
  bomb.is_deflated = true;
  expect_refused(write_archive(folder, {bomb}), {"digits.zip", "train/0/bomb.png"});
}

TEST(BadData, NamesAnEncryptedEntryOfAZip) {
  const TemporaryFolder folder;
  RawZipEntry secret = stored_entry("train/0/secret.png", png());
  secret.is_encrypted = true;
  expect_refused(write_archive(folder, {secret}), {"digits.zip", "train/0/secret.png"});
}

TEST(BadData, NamesAZipWithoutADirectory) {
  const TemporaryFolder folder;
  Bytes bytes = make_zip(archive_files());
  bytes.resize(bytes.size() / 2);
  expect_refused(folder.write("digits.zip", bytes), {"digits.zip"});
  expect_refused(folder.write("text.zip", to_bytes("no archive")), {"text.zip"});
}

TEST(BadData, NamesAFolderWithoutImages) {
  const TemporaryFolder nothing;
  expect_refused(nothing.path(),
                 {"--data " + nothing.path(), "expected MNIST's IDX files", "train/ and test/"});
  const TemporaryFolder no_classes;
  for (const std::string part : {"train", "test"}) no_classes.write(part + "/readme.txt", to_bytes("none"));
  expect_refused(no_classes.path(), {no_classes.path() + "/train: class folders: expected at least one"});
}

TEST(BadData, NamesAnEmptyClass) {
  const TemporaryFolder folder;
  write_class_folders(folder);
  std::filesystem::create_directory(folder.path() + "/train/2");
  expect_refused(folder.path(), {folder.path() + "/train", "class '2'"});
}

TEST(BadData, NamesAMissingTestFolder) {
  const TemporaryFolder folder;
  write_class_folders(folder);
  std::filesystem::remove_all(folder.path() + "/test");
  expect_refused(folder.path(), {folder.path() + "/test"});
}

TEST(BadData, IsASingleClass) {
  const TemporaryFolder folder;
  for (const std::string part : {"train/", "test/"}) folder.write(part + "images/a.png", png());
  expect_refused(folder.path(), {folder.path() + "/train: expected a folder of images for each of 2 classes",
                                 "but got one folder, images/"});
}

TEST(BadData, NamesTestClassesThatTrainingDoesNotKnow) {
  const TemporaryFolder folder;
  write_class_folders(folder);
  folder.write("test/2/a.png", png());
  expect_refused(folder.path(), {"/test: class folders: expected 0, 1 as in train/, but got 0, 1, 2"});
}

TEST(BadData, NamesAPathThatIsNotThere) {
  expect_refused("/no/such/path", {"--data /no/such/path", "no such file or folder"});
  expect_refused("generatd", {"--data generatd", "did you mean generated?"});
}

}  // namespace
}  // namespace lockstep::testing
