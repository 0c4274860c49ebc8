#include "lockstep/datasets/images/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/mnist.h"
#include "lockstep/tests/datasets/images/image_folder_fixture.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using testing::encode_png;
using ::testing::HasSubstr;
using testing::make_image;
using ::testing::Property;
using ::testing::Throws;

template <typename Dataset>
torch::data::Example<> get_all(const Dataset& dataset) {
  std::vector<size_t> indices(*dataset.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return dataset.get_batch(indices);
}

torch::Tensor to_tensor(const DecodedImage& image) {
  return torch::tensor(at::ArrayRef<uint8_t>(image.pixels))
      .view({image.height, image.width, image.channels})
      .permute({2, 0, 1});
}

TEST_F(ImageFolderTest, CollatesImagesAndTargetsInTheOrderAskedFor) {
  write(make_files(2, 3));
  const ImageFolder dataset(root());
  EXPECT_EQ(dataset.size(), 6U);
  EXPECT_THAT(dataset.classes(), ElementsAre("0", "1"));
  const auto batch = dataset.get_batch({4, 1, 4});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{3, 1, 6, 5}));
  EXPECT_EQ(batch.data.scalar_type(), torch::kByte);
  EXPECT_TRUE(batch.data[0].equal(to_tensor(make_image(6, 5, 1, 4))));
  EXPECT_TRUE(batch.data[1].equal(to_tensor(make_image(6, 5, 1, 1))));
  EXPECT_TRUE(batch.data[2].equal(batch.data[0]));
  EXPECT_TRUE(batch.target.equal(torch::tensor({1, 0, 1}, torch::kLong)));
  EXPECT_THROW(dataset.get_batch({6}), std::invalid_argument);
}

TEST_F(ImageFolderTest, ReadsColoursInTheirOrder) {
  write(make_files(1, 2, 3));
  const auto batch = ImageFolder(root()).get_batch({1});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{1, 3, 6, 5}));
  EXPECT_TRUE(batch.data[0].equal(to_tensor(make_image(6, 5, 3, 1))));
}

TEST_F(ImageFolderTest, HasTheIdentityOfItsFilesInAFolderAndInAnArchive) {
  auto files = make_files(2, 3);
  write(files);
  const std::string identity = ImageFolder(root()).identity();
  EXPECT_THAT(identity, HasSubstr("images in 2 classes (checksum "));
  const auto archive_of = [&](const std::vector<testing::ArchiveFile>& of) {
    return ImageFolder(folder_.write("images.zip", testing::make_zip(of))).identity();
  };
  EXPECT_EQ(archive_of(files), identity);
  files.front().bytes = encode_png(make_image(6, 5, 1, 77));
  EXPECT_NE(archive_of(files), identity) << "another picture";
  files = make_files(2, 3);
  files.front().name = "0/099.png";
  EXPECT_NE(archive_of(files), identity) << "another name";
}

TEST_F(ImageFolderTest, GivesEmptyTensorsForNoIndices) {
  write(make_files(2, 1));
  const ImageFolder dataset(root(), {.image_size = 16});
  const auto batch = dataset.get_batch({});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{0, 1, 6, 5}));
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{0}));
  EXPECT_EQ(dataset.device_transform(batch).data.sizes(), (std::vector<int64_t>{0, 3, 16, 16}));
}

TEST_F(ImageFolderTest, GivesTheSameFromAnArchiveAndWithoutACache) {
  const auto files = make_files(3, 70);
  write(files);
  folder_.write("packed.zip", testing::make_zip(files));
  const auto expected = get_all(ImageFolder(root()));
  for (const char* path : {"/root", "/packed.zip"}) {
    // 0 caches nothing; 5000 holds 166 of the 210 images in grey, or 55 with three channels.
    for (const int64_t cache_bytes : {int64_t{0}, int64_t{5000}, int64_t{1} << 20}) {
      const ImageFolder dataset(folder_.path() + path,
                                {.channels = 1, .cache_bytes = cache_bytes, .num_threads = 3});
      const auto batch = get_all(dataset);
      EXPECT_TRUE(batch.data.equal(expected.data)) << path << ", " << cache_bytes;
      EXPECT_TRUE(batch.target.equal(expected.target)) << path << ", " << cache_bytes;
    }
  }
}

TEST_F(ImageFolderTest, DecodesOnceIntoTheCache) {
  const auto files = make_files(2, 3);
  write(files);
  folder_.write("packed.zip", testing::make_zip(files));
  const ImageFolder from_disk(root());
  const ImageFolder from_archive(folder_.path() + "/packed.zip");
  // Replaces the images, then removes them: decoding again would give other images, or none.
  std::vector<testing::ArchiveFile> others;
  for (const auto& file : files) others.push_back({file.name, encode_png(make_image(6, 5, 1, 99))});
  write(others);
  folder_.write("packed.zip", testing::make_zip(others));
  for (const bool gone : {false, true}) {
    if (gone) {
      std::filesystem::remove_all(root());
      std::filesystem::remove(folder_.path() + "/packed.zip");
    }
    for (const ImageFolder* dataset : {&from_disk, &from_archive}) {
      SCOPED_TRACE(std::string(dataset == &from_disk ? "disk" : "archive") +
                   (gone ? ", gone" : ", replaced"));
      const auto batch = get_all(*dataset);
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_TRUE(batch.data[i].equal(to_tensor(make_image(6, 5, 1, static_cast<uint64_t>(i))))) << i;
      }
    }
  }
}

TEST_F(ImageFolderTest, ServesSeveralThreadsAtOnceBeyondTheCache) {
  folder_.write("packed.zip", testing::make_zip(make_files(3, 70)));
  const std::string path = folder_.path() + "/packed.zip";
  const torch::Tensor expected = get_all(ImageFolder(path, {.channels = 1})).data;
  const ImageFolder dataset(path, {.channels = 1, .cache_bytes = 3000, .num_threads = 3});
  std::vector<torch::Tensor> results(4);
  {
    std::vector<std::jthread> threads;
    for (torch::Tensor& result : results) threads.emplace_back([&] { result = get_all(dataset).data; });
  }
  for (const torch::Tensor& result : results) EXPECT_TRUE(result.equal(expected));
}

TEST_F(ImageFolderTest, KeepsTheColourOfOneImageAmongGreyOnes) {
  write(make_files(1, 3));
  folder_.write("root/0/200.png", encode_png(make_image(6, 5, 3, 9)));
  const auto colour = get_all(ImageFolder(root(), {.channels = 3}));
  EXPECT_EQ(colour.data.sizes(), (std::vector<int64_t>{4, 3, 6, 5}));
  EXPECT_TRUE(colour.data[3].equal(to_tensor(make_image(6, 5, 3, 9))));
  EXPECT_TRUE(colour.data[0][2].equal(to_tensor(make_image(6, 5, 1, 0))[0]));
  EXPECT_EQ(get_all(ImageFolder(root(), {.channels = 1})).data.sizes(), (std::vector<int64_t>{4, 1, 6, 5}));
}

TEST_F(ImageFolderTest, ResizesImagesOfDifferentSizesWhenDecoding) {
  write(make_files(1, 3));
  folder_.write("root/0/200.png", encode_png(make_image(12, 9, 1)));
  const ImageFolder dataset(root(), {.image_size = 8, .channels = 1});
  const auto batch = get_all(dataset);
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{4, 1, 8, 8}));
  // The same as a resize in floats on the device, except for rounding to whole values.
  const torch::Tensor expected =
      at::_upsample_bilinear2d_aa(to_tensor(make_image(12, 9, 1)).unsqueeze(0).to(torch::kFloat), {8, 8},
                                  false) /
      255;
  const torch::Tensor result = dataset.device_transform(batch).data.slice(0, 3);
  EXPECT_TRUE(torch::allclose(result, expected, 0, 0.51 / 255));
}

TEST_F(ImageFolderTest, NamesAnImageOfAnotherSizeWhereNoSizeIsAskedFor) {
  write(make_files(1, 3));
  folder_.write("root/0/200.png", encode_png(make_image(12, 9, 1)));
  for (const int64_t cache_bytes : {0, 1 << 20}) {
    EXPECT_THAT(
        [&] { get_all(ImageFolder(root(), {.cache_bytes = cache_bytes})); },
        Throws<DataError>(Property(
            &DataError::what, AllOf(HasSubstr("0/200.png: size: expected 5 x 6"), HasSubstr("got 9 x 12")))));
  }
}

TEST_F(ImageFolderTest, TakesALimitFromTheClassesInTurn) {
  write(make_files(3, 4));
  const auto batch = get_all(ImageFolder(root(), {.limit = 5}));
  EXPECT_TRUE(batch.target.equal(torch::tensor({0, 0, 1, 1, 2}, torch::kLong)));
  EXPECT_TRUE(batch.data[3].equal(to_tensor(make_image(6, 5, 1, 5))));
  EXPECT_EQ(ImageFolder(root(), {.limit = 100}).size(), 12U);
}

TEST_F(ImageFolderTest, NamesTheFirstDamagedImage) {
  write(make_files(2, 200));
  Bytes damaged = encode_png(make_image(6, 5, 1));
  damaged.resize(damaged.size() - 20);
  for (const char* name : {"1/110.png", "0/150.png", "0/160.png"})
    folder_.write(std::string("root/") + name, damaged);
  EXPECT_THAT([&] { ImageFolder(root(), {.num_threads = 4}); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("0/150.png: damaged PNG"))));
}

TEST_F(ImageFolderTest, SkipsAndCountsDamagedImagesOnRequest) {
  write(make_files(2, 5));
  folder_.write("root/0/100.png", Bytes{});
  folder_.write("root/1/102.png", testing::to_bytes("no image"));
  const torch::Tensor expected_targets = torch::tensor({0, 0, 0, 0, 1, 1, 1, 1}, torch::kLong);
  // All, some and none of the images cached.
  for (const int64_t cache_bytes : {1 << 20, 100, 0}) {
    const ImageFolder dataset(root(), {.channels = 1, .skip_bad = true, .cache_bytes = cache_bytes});
    EXPECT_THAT(dataset.skipped(), ElementsAre(HasSubstr("0/100.png"), HasSubstr("1/102.png")));
    const auto batch = get_all(dataset);
    EXPECT_TRUE(batch.target.equal(expected_targets));
    const std::vector<uint64_t> seeds = {1, 2, 3, 4, 5, 6, 8, 9};
    for (size_t i = 0; i < seeds.size(); ++i) {
      EXPECT_TRUE(batch.data[static_cast<int64_t>(i)].equal(to_tensor(make_image(6, 5, 1, seeds[i])))) << i;
    }
  }
}

TEST_F(ImageFolderTest, TellsABadImageFromABadFolder) {
  write(make_files(1, 2));
  folder_.write("root/0/200.png", Bytes{1});
  EXPECT_THROW(ImageFolder{root()}, ImageError);
  EXPECT_THROW(get_all(ImageFolder(root(), {.cache_bytes = 0})), ImageError) << "beyond the cache";
  folder_.write("root/0/200.png", encode_png(make_image(7, 7, 1)));
  EXPECT_THROW(ImageFolder{root()}, ImageError) << "of another size";
  try {
    ImageFolder(folder_.path() + "/nowhere");
    FAIL() << "opened it";
  } catch (const ImageError&) {
    FAIL() << "expected an error that skip_bad does not help with";
  } catch (const DataError&) {
  }
}

TEST_F(ImageFolderTest, ListsTheFilesThatItDoesNotRead) {
  write(make_files(2, 1));
  EXPECT_THAT(ImageFolder(root()).ignored_files().names, ElementsAre());
  for (const std::string name : {"0/moving.gif", "1/scan.tiff", "1/more/x.png"})
    folder_.write("root/" + name, Bytes{1});
  EXPECT_THAT(ImageFolder(root()).ignored_files().names,
              ElementsAre("0/moving.gif", "1/more/", "1/scan.tiff"));
}

TEST_F(ImageFolderTest, TurnsPhotosUprightOnRequest) {
  const DecodedImage image = make_image(6, 5, 1);
  // Two images, the second of which is stored on its side: EXIF's orientation 6.
  const Bytes exif = {'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0};
  folder_.write("root/0/1.png", encode_png(image));
  folder_.write("root/0/2.png", testing::with_png_chunk(encode_png(make_image(5, 6, 1)), "eXIf", exif));
  const torch::Tensor side = to_tensor(make_image(5, 6, 1));
  for (const int64_t cache_bytes : {0, 1 << 20}) {
    const auto upright =
        get_all(ImageFolder(root(), {.apply_exif_orientation = true, .cache_bytes = cache_bytes}));
    EXPECT_TRUE(upright.data[0][0].equal(to_tensor(image)[0]));
    EXPECT_TRUE(upright.data[1][0].equal(side[0].rot90(-1)));
  }
  EXPECT_THROW(ImageFolder{root()}, ImageError) << "as they are stored, the sizes differ";
}

TEST_F(ImageFolderTest, RefusesAFolderOfNothingButDamagedImages) {
  folder_.write("root/0/1.png", Bytes{1});
  folder_.write("root/0/2.png", Bytes{2});
  EXPECT_THAT([&] { ImageFolder(root(), {.skip_bad = true}); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("2 bad ones"))));
}

TEST_F(ImageFolderTest, NamesAFileDeletedOrShortenedLater) {
  write(make_files(1, 3));
  const ImageFolder dataset(root(), {.cache_bytes = 0});
  EXPECT_NO_THROW(get_all(dataset));
  std::filesystem::remove(root() + "/0/101.png");
  EXPECT_THAT([&] { dataset.get_batch({1}); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("0/101.png: cannot open"))));
  std::filesystem::resize_file(root() + "/0/102.png", 40);
  EXPECT_THAT([&] { dataset.get_batch({2}); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("0/102.png: damaged PNG"))));
  EXPECT_NO_THROW(dataset.get_batch({0}));
}

TEST_F(ImageFolderTest, NamesAnArchiveShortenedLater) {
  // Long enough that the buffer filled for the first image does not hold the second one.
  const std::string path = folder_.write(
      "packed.zip",
      testing::make_raw_zip({testing::stored_entry("0/1.png", encode_png(make_image(6, 5, 1))),
                             testing::stored_entry("0/between.txt", Bytes(100000)),
                             testing::stored_entry("0/2.png", encode_png(make_image(6, 5, 1)))}));
  const ImageFolder dataset(path, {.cache_bytes = 0});
  EXPECT_NO_THROW(dataset.get_batch({1}));
  EXPECT_NO_THROW(dataset.get_batch({0}));
  std::filesystem::resize_file(path, 50000);
  EXPECT_THAT([&] { dataset.get_batch({1}); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("packed.zip/0/2.png"))));
}

TEST_F(ImageFolderTest, WritesNothingForAHostileArchive) {
  const Bytes png = encode_png(make_image(6, 5, 1));
  const std::string path = folder_.write(
      "inner/hostile.zip", testing::make_raw_zip({testing::stored_entry("0/a.png", png),
                                                  testing::stored_entry("../escaped.png", png)}));
  EXPECT_THROW(ImageFolder{path}, DataError);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/escaped.png"));
}

TEST_F(ImageFolderTest, RefusesOptionsOutOfRange) {
  write(make_files(1, 1));
  EXPECT_THROW(ImageFolder(root(), {.image_size = -1}), std::invalid_argument);
  EXPECT_THROW(ImageFolder(root(), {.channels = 4}), std::invalid_argument);
  EXPECT_THROW(ImageFolder(root(), {.limit = -1}), std::invalid_argument);
  EXPECT_THROW(ImageFolder(root(), {.cache_bytes = -1}), std::invalid_argument);
}

/// Every image of a class as a string of its pixels, sorted.
std::vector<std::multiset<std::string>> images_by_class(const torch::data::Example<>& all) {
  std::vector<std::multiset<std::string>> classes(10);
  const torch::Tensor images = all.data.contiguous().flatten(1);
  for (int64_t i = 0; i < images.size(0); ++i) {
    const auto* pixels = reinterpret_cast<const char*>(images.const_data_ptr<uint8_t>() + i * images.size(1));
    classes.at(static_cast<size_t>(all.target[i].item<int64_t>())).emplace(pixels, images.size(1));
  }
  return classes;
}

TEST(RealMnistArchive, HoldsTheImagesOfTheIdxFiles) {
  if (testing::mnist_folder().empty()) GTEST_SKIP() << "LOCKSTEP_MNIST_DIR is not set";
  const std::string archive = testing::mnist_folder() + "/mnist.zip";
  EXPECT_EQ(images_by_class(get_all(ImageFolder(archive + "/train"))),
            images_by_class(get_all(Mnist(testing::mnist_folder()))));
  EXPECT_EQ(images_by_class(get_all(ImageFolder(archive + "/test"))),
            images_by_class(get_all(Mnist(testing::mnist_folder(), {.split = MnistSplit::kTest}))));
}

}  // namespace
}  // namespace lockstep
