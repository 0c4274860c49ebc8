// ImageFolder with ImageCache::kDevice. On GPUs: tests/gpu/image_folder_gpu_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/tests/datasets/images/image_folder_fixture.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::encode_png;
using ::testing::HasSubstr;
using testing::make_image;
using ::testing::Property;
using ::testing::Throws;

/// Expects the same batches from a device's cache as from the host's.
void expect_same_from_device_cache(const std::string& path, ImageFolderOptions options) {
  const ImageFolder host(path, options);
  options.cache = ImageCache::kDevice;
  const ImageFolder device(path, options);
  ASSERT_EQ(device.size(), host.size());
  for (const std::vector<size_t>& indices : {std::vector<size_t>{3, 0, 3, 2, 1}, std::vector<size_t>{}}) {
    const auto expected = host.device_transform(host.get_batch(indices));
    const auto batch = device.device_transform(device.get_batch(indices));
    EXPECT_TRUE(batch.data.equal(expected.data));
    EXPECT_EQ(batch.data.strides(), expected.data.strides());
    EXPECT_TRUE(batch.target.equal(expected.target));
    EXPECT_TRUE(device.get_images(indices).data.equal(host.get_batch(indices).data));
  }
}

TEST_F(ImageFolderTest, GivesTheSameFromADevicesCache) {
  const auto files = make_files(2, 3);
  write(files);
  folder_.write("packed.zip", testing::make_zip(files));
  for (const std::string& path : {root(), folder_.path() + "/packed.zip"}) {
    SCOPED_TRACE(path);
    expect_same_from_device_cache(path, {});
    expect_same_from_device_cache(path, {.image_size = 16, .channels = 1, .mean = {0.3}, .limit = 5});
    expect_same_from_device_cache(path,
                                  {.image_size = 3, .mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.6, 0.7}});
  }
}

TEST_F(ImageFolderTest, GivesTheSameFromADevicesCacheWhereImagesDifferOrAreDamaged) {
  write(make_files(2, 3));
  folder_.write("root/0/200.png", encode_png(make_image(12, 9, 3)));
  folder_.write("root/0/099.png", Bytes{});
  expect_same_from_device_cache(root(), {.image_size = 7, .skip_bad = true});
}

TEST_F(ImageFolderTest, ReturnsIndicesWithADevicesCache) {
  write(make_files(2, 3));
  const ImageFolder dataset(root(), {.cache = ImageCache::kDevice});
  const auto batch = dataset.get_batch({4, 1, 4});
  EXPECT_TRUE(batch.data.equal(torch::tensor({4, 1, 4}, torch::kLong)));
  EXPECT_TRUE(batch.target.equal(torch::tensor({1, 0, 1}, torch::kLong)));
  EXPECT_EQ(dataset.get_batch({}).data.sizes(), (std::vector<int64_t>{0}));
  EXPECT_THROW(dataset.get_batch({6}), std::invalid_argument);
  EXPECT_THROW(dataset.get_images({6}), std::invalid_argument);
  EXPECT_THROW(dataset.device_transform(dataset.get_images({0})), std::invalid_argument);
}

TEST_F(ImageFolderTest, KeepsADevicesCacheAsLongAsACopy) {
  write(make_files(2, 3));
  std::optional<ImageFolder> first(std::in_place, root(), ImageFolderOptions{.cache = ImageCache::kDevice});
  const ImageFolder second = *first;
  const auto expected = first->device_transform(first->get_batch({5, 0})).data;
  first.reset();
  EXPECT_TRUE(second.device_transform(second.get_batch({5, 0})).data.equal(expected));
}

TEST_F(ImageFolderTest, RefusesImagesThatDoNotFitOnADevice) {
  write(make_files(2, 3));
  EXPECT_THAT(
      [&] { ImageFolder(root(), {.cache_bytes = 179, .cache = ImageCache::kDevice}); },
      Throws<std::invalid_argument>(Property(
          &std::invalid_argument::what, AllOf(HasSubstr("[ImageFolder] cache_bytes: expected 180 or more"),
                                              HasSubstr("all 6 images"), HasSubstr("but got 179")))));
  EXPECT_NO_THROW(ImageFolder(root(), {.cache_bytes = 180, .cache = ImageCache::kDevice}));
  folder_.write("root/0/200.png", encode_png(make_image(12, 9, 1)));
  EXPECT_THAT([&] { ImageFolder(root(), {.cache = ImageCache::kDevice}); },
              Throws<DataError>(Property(&DataError::what, HasSubstr("0/200.png: size: expected 5 x 6"))));
}

}  // namespace
}  // namespace lockstep
