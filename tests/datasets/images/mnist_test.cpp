#include "lockstep/datasets/images/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using ::testing::Property;
using testing::TemporaryFolder;
using ::testing::Throws;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

Bytes make_images(uint8_t count) {
  Bytes out = {0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 3};
  for (int i = 0; i < count * 6; ++i) out.push_back(static_cast<uint8_t>(i));
  return out;
}

Bytes make_labels(const Bytes& labels) {
  Bytes out = {0, 0, 8, 1, 0, 0, 0, static_cast<uint8_t>(labels.size())};
  for (const uint8_t label : labels) out.push_back(label);
  return out;
}

std::vector<size_t> all_indices(const Mnist& dataset) {
  std::vector<size_t> indices(*dataset.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

void expect_refused(const TemporaryFolder& folder, const std::string& text) {
  EXPECT_THAT([&] { Mnist(folder.path()); }, Throws<DataError>(Property(&DataError::what, HasSubstr(text))));
}

TEST(Mnist, PairsImagesWithLabels) {
  const TemporaryFolder folder;
  folder.write(kImages, make_images(3));
  folder.write(kLabels, make_labels({9, 0, 5}));
  const Mnist dataset(folder.path());
  EXPECT_EQ(dataset.size(), 3U);
  const auto batch = dataset.get_batch({2, 0});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{2, 1, 2, 3}));
  EXPECT_TRUE(
      batch.data.flatten().equal(torch::tensor({12, 13, 14, 15, 16, 17, 0, 1, 2, 3, 4, 5}, torch::kByte)));
  EXPECT_TRUE(batch.target.equal(torch::tensor({5, 9}, torch::kLong)));
  EXPECT_EQ(Mnist(folder.path(), {.limit = 2}).size(), 2U);
  EXPECT_THROW(Mnist(folder.path(), {.limit = 2}).get_batch({2}), std::invalid_argument);
}

TEST(Mnist, HasAnIdentityOfItsImagesAndLabels) {
  const auto identity = [](const Bytes& labels) {
    const TemporaryFolder folder;
    folder.write(kImages, make_images(3));
    folder.write(kLabels, make_labels(labels));
    return Mnist(folder.path()).identity();
  };
  EXPECT_THAT(identity({9, 0, 5}), HasSubstr("MNIST's files: Byte [3, 1, 2, 3] (checksum "));
  EXPECT_EQ(identity({9, 0, 5}), identity({9, 0, 5})) << "in another folder";
  EXPECT_NE(identity({9, 0, 5}), identity({9, 0, 4}));
}

TEST(Mnist, RefusesImagesAndLabelsOfDifferentCounts) {
  const TemporaryFolder folder;
  folder.write(kImages, make_images(3));
  folder.write(kLabels, make_labels({9, 0}));
  expect_refused(folder, "number of labels: expected 3 as in ");
}

TEST(Mnist, RefusesLabelsAboveNine) {
  const TemporaryFolder folder;
  folder.write(kImages, make_images(3));
  folder.write(kLabels, make_labels({9, 10, 1}));
  expect_refused(folder, "label 1: expected 0 to 9, but got 10");
}

TEST(Mnist, RefusesAPairWithoutImages) {
  const TemporaryFolder folder;
  folder.write(kImages, make_images(0));
  folder.write(kLabels, make_labels({}));
  expect_refused(folder, "number of images: expected at least one");
}

TEST(Mnist, RefusesImagesWithoutPixels) {
  const TemporaryFolder folder;
  folder.write(kImages, Bytes{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3});
  folder.write(kLabels, make_labels({1, 2}));
  expect_refused(folder, "image size: expected at least 1 x 1, but got 3 x 0");
}

TEST(Mnist, NamesTheFileThatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(holds_mnist(folder.path()));
  folder.write(kImages, make_images(3));
  EXPECT_TRUE(holds_mnist(folder.path()));
  expect_refused(folder, "expected MNIST's train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz");
}

TEST(Mnist, RefusesFilesOfEachOthersKind) {
  const TemporaryFolder folder;
  folder.write(kImages, make_labels({1, 2, 3}));
  folder.write(kLabels, make_labels({1, 2, 3}));
  expect_refused(folder, "train-images-idx3-ubyte: number of dimensions: expected 3, but got 1");
}

class RealMnist : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::mnist_folder().empty()) GTEST_SKIP() << "LOCKSTEP_MNIST_DIR is not set";
  }
};

TEST_F(RealMnist, HasThePublishedLabelsCountsAndStatistics) {
  const Mnist train(testing::mnist_folder());
  ASSERT_EQ(train.size(), 60000U);
  const auto batch = train.get_batch(all_indices(train));
  EXPECT_TRUE(
      batch.target.slice(0, 0, 10).equal(torch::tensor({5, 0, 4, 1, 9, 2, 1, 3, 1, 4}, torch::kLong)));
  EXPECT_TRUE(batch.target.bincount().equal(
      torch::tensor({5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}, torch::kLong)));
  const torch::Tensor pixels = batch.data.to(torch::kFloat) / 255;
  EXPECT_NEAR(pixels.mean().item<double>(), 0.1307, 5e-5);
  EXPECT_NEAR(pixels.std().item<double>(), 0.3081, 5e-5);
}

TEST_F(RealMnist, HasThePublishedTestSplit) {
  const Mnist test(testing::mnist_folder(), {.split = MnistSplit::kTest});
  ASSERT_EQ(test.size(), 10000U);
  const auto batch = test.get_batch(all_indices(test));
  EXPECT_TRUE(
      batch.target.slice(0, 0, 10).equal(torch::tensor({7, 2, 1, 0, 4, 1, 4, 9, 5, 9}, torch::kLong)));
  EXPECT_TRUE(batch.target.bincount().equal(
      torch::tensor({980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}, torch::kLong)));
}

TEST_F(RealMnist, NormalisesToMeanZeroAndDeviationOne) {
  const Mnist test(testing::mnist_folder(),
                   {.split = MnistSplit::kTest, .mean = {0.1307}, .stddev = {0.3081}});
  const torch::Tensor images = test.device_transform(test.get_batch(all_indices(test))).data;
  EXPECT_NEAR(images.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(images.std().item<double>(), 1, 0.02);
}

}  // namespace
}  // namespace lockstep
