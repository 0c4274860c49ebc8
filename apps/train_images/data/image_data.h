#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/parquet_image_part.h"
#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/datasets/images/augmented_dataset.h"
#include "lockstep/datasets/images/generated_digits.h"
#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/datasets/images/mnist.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

using ImageDataset = std::variant<Mnist, ImageFolder, GeneratedDigits, ParquetImagePart>;

/// Images to train and to test on.
struct ImageData {
  ImageDataset train;
  ImageDataset test;
  int64_t num_classes = 10;
  std::vector<std::string> skipped = {};  ///< one message for each image that was left out
};

/// Returns the number of channels: grey for SimpleCnn, RGB for MobileNetV2.
int64_t channels_of(ModelKind model);

/// Loads the images or creates their generator. Blocks until all are in memory, but for those of Parquet
/// files. Throws DataError as datasets do, if the classes of train/ and test/ differ, and if there is only
/// one. Throws UsageError if the images are to be cached on devices and do not fit there, or are not in
/// folders, and if options of Parquet files were given for others.
ImageData load_images(const DataLocation& location, const TrainOptions& options);

/// Returns these images, uint8 [n, channels, height, width], and their targets, on the CPU. Throws as the
/// dataset's get_batch().
Example images_of(const ImageDataset& dataset, const std::vector<size_t>& indices);

/// Returns the changes of training images that the options ask for.
AugmentedDatasetOptions augmentation_of(const TrainOptions& options, int64_t num_classes);

/// Returns the name of the class' folder or that in Parquet files, or its digit.
std::string class_name(const ImageData& data, int64_t target);

int64_t size_of(const ImageDataset& dataset);

DistributedDataset<Example> distribute(const Strategy& strategy, const ImageDataset& dataset,
                                       const DistributeOptions& options);
/// The same with changed images. With mixup, targets are probabilities [n, classes].
DistributedDataset<Example> distribute_augmented(const Strategy& strategy, const ImageDataset& dataset,
                                                 const AugmentedDatasetOptions& augmentation,
                                                 const DistributeOptions& options);

}  // namespace lockstep::apps
