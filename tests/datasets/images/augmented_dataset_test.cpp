#include "lockstep/datasets/images/augmented_dataset.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <vector>

#include "lockstep/datasets/images/generated_digits.h"

namespace lockstep {
namespace {

const std::vector<size_t> kIndices{17, 3, 8, 8, 0};
const ImageAugmentation kChanges{.crop_padding = 4,
                                 .flip = true,
                                 .rotation = 20,
                                 .contrast = 0.5,
                                 .mean = {0.1},
                                 .stddev = {0.3},
                                 .seed = 6};

GeneratedDigits twenty_digits() {
  return GeneratedDigits({.count = 20, .mean = {0.1}, .stddev = {0.3}});
}

torch::data::Example<> finished(const GeneratedDigits& digits, const std::vector<size_t>& indices) {
  return digits.device_transform(digits.get_batch(indices));
}

TEST(AugmentedDataset, ChangesImagesAfterTheDatasetsOwnTransform) {
  const auto digits = twenty_digits();
  const AugmentedDataset dataset(digits, {.images = kChanges});
  EXPECT_EQ(dataset.size(), 20U);
  const auto batch = augmented_examples(dataset.device_transform(dataset.get_batch(kIndices, 3)));
  const auto plain = finished(digits, kIndices);
  EXPECT_TRUE(batch.data.equal(kChanges(plain.data, kIndices, 3)));
  EXPECT_FALSE(batch.data.equal(plain.data));
  EXPECT_TRUE(batch.target.equal(plain.target));
  const auto first = augmented_examples(dataset.device_transform(dataset.get_batch(kIndices)));
  EXPECT_TRUE(first.data.equal(kChanges(plain.data, kIndices, 0)));
}

TEST(AugmentedDataset, MixesEachImageWithItsPartnerBothChanged) {
  const auto digits = twenty_digits();
  const Mixup mixup{.alpha = 0.5, .num_classes = 10, .seed = 2};
  const AugmentedDataset dataset(digits, {.images = kChanges, .mixup = mixup});
  const auto batch = augmented_examples(dataset.device_transform(dataset.get_batch(kIndices, 1)));
  const auto partners = mixup.partners(kIndices, 1, 20);
  const auto weights = mixup.weights(kIndices, 1);
  const auto own = finished(digits, kIndices), others = finished(digits, partners);
  for (int64_t i = 0; i < 5; ++i) {
    const auto weight = weights[i];
    const auto pixels =
        weight * kChanges(own.data, kIndices, 1)[i] + (1 - weight) * kChanges(others.data, partners, 1)[i];
    EXPECT_TRUE(batch.data[i].allclose(pixels, 1e-5, 1e-5));
    const auto target =
        weight * torch::one_hot(own.target, 10)[i] + (1 - weight) * torch::one_hot(others.target, 10)[i];
    EXPECT_TRUE(batch.target[i].allclose(target));
  }
}

TEST(AugmentedDataset, IsIdentifiedByItsExamplesAndItsChanges) {
  const auto digits = twenty_digits();
  EXPECT_EQ(AugmentedDataset(digits, {.images = {.flip = true, .seed = 6}}).identity(),
            "generated digits of seed 0, augmented: flip, mean 0, stddev 1, seed 6");
  EXPECT_EQ(
      AugmentedDataset(digits, {.mixup = {.alpha = 0.5, .num_classes = 10, .seed = 2}}).identity(),
      "generated digits of seed 0, augmented: mean 0, stddev 1, seed 0, mixup 0.5 of 10 classes, seed 2");
}

TEST(AugmentedDataset, RefusesWrongOptions) {
  EXPECT_THROW(AugmentedDataset(twenty_digits(), {.images = {.crop_padding = -1}}), std::invalid_argument);
  EXPECT_THROW(AugmentedDataset(twenty_digits(), {.mixup = {.alpha = 1}}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
