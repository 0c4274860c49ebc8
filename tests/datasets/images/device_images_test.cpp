#include "lockstep/datasets/images/internal/device_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/datasets/images/internal/image_store.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

// tests/gpu/image_folder_gpu_test.cpp has the tests on GPUs.
class DeviceImagesTest : public ::testing::Test {
 protected:
  DeviceImagesTest() {
    for (uint64_t i = 0; i < 4; ++i) {
      folder_.write("root/0/" + std::to_string(i) + ".png",
                    testing::encode_png(testing::make_image(6, 5, 3, i)));
    }
    images_ = std::make_unique<DeviceImages>(std::make_shared<const ImageStore>(
        list_class_folder(folder_.file("root")), ImageStoreOptions{.cache_bytes = 1 << 20}));
  }

  const testing::TemporaryFolder folder_;
  std::unique_ptr<DeviceImages> images_;
};

TEST_F(DeviceImagesTest, GatherReturnsTheImagesInTheOrderAskedFor) {
  const at::Tensor images = images_->gather(torch::tensor({2, 0, 2}, torch::kLong));
  EXPECT_EQ(images.sizes(), (std::vector<int64_t>{3, 3, 6, 5}));
  EXPECT_EQ(images.scalar_type(), torch::kByte);
  EXPECT_TRUE(images.is_contiguous(at::MemoryFormat::ChannelsLast));
  for (const auto& [row, seed] : {std::pair(0, 2), std::pair(1, 0), std::pair(2, 2)}) {
    const DecodedImage expected = testing::make_image(6, 5, 3, static_cast<uint64_t>(seed));
    EXPECT_TRUE(images[row].equal(
        torch::tensor(at::ArrayRef<uint8_t>(expected.pixels)).view({6, 5, 3}).permute({2, 0, 1})));
  }
}

TEST_F(DeviceImagesTest, GatherOfNoIndicesHasTheImagesShape) {
  EXPECT_EQ(images_->gather(torch::empty({0}, torch::kLong)).sizes(), (std::vector<int64_t>{0, 3, 6, 5}));
}

TEST_F(DeviceImagesTest, GatherRefusesOtherThanIndices) {
  EXPECT_THAT(
      [&] {
        images_->gather(torch::zeros({2, 3, 6, 5}, torch::kByte));
      },
      Throws<std::invalid_argument>(
          Property(&std::invalid_argument::what, HasSubstr("int64 [n], but got Byte [2, 3, 6, 5]"))));
  EXPECT_THROW(images_->gather(torch::zeros({2}, torch::kInt)), std::invalid_argument);
  EXPECT_THROW(images_->gather(torch::zeros({2, 1}, torch::kLong)), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
