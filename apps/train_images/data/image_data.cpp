#include "lockstep/apps/train_images/data/image_data.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/datasets/files/data_error.h"

namespace lockstep::apps {
namespace {

// Statistics of MNIST's training pixels.
constexpr double kMean = 0.1307;
constexpr double kStddev = 0.3081;

constexpr int64_t kGeneratedTrain = 60000;
constexpr int64_t kGeneratedTest = 10000;

ImageDataset read_mnist(const DataLocation& location, const TrainOptions& options, MnistSplit split) {
  return Mnist(location.path,
               {.split = split,
                .limit = split == MnistSplit::kTrain ? options.limit_train : options.limit_test,
                .image_size = options.image_size,
                .channels = channels_of(options.model),
                .mean = {kMean},
                .stddev = {kStddev}});
}

ImageFolder read_folder(const DataLocation& location, const TrainOptions& options, const char* part,
                        int64_t limit) {
  try {
    return ImageFolder(location.path + "/" + part, {.image_size = options.image_size,
                                                    .channels = channels_of(options.model),
                                                    .mean = {kMean},
                                                    .stddev = {kStddev},
                                                    .limit = limit,
                                                    .skip_bad = options.skip_bad,
                                                    .apply_exif_orientation = options.exif_orientation,
                                                    .cache = options.image_cache});
  } catch (const std::invalid_argument& error) {
    if (options.image_cache != ImageCache::kDevice) throw;
    throw UsageError(c10::str("--image-cache device: ", error.what()));
  }
}

ImageData read_folders(const DataLocation& location, const TrainOptions& options) {
  ImageFolder train = read_folder(location, options, "train", options.limit_train);
  ImageFolder test = read_folder(location, options, "test", options.limit_test);
  if (train.classes() != test.classes()) {
    throw DataError(location.path + "/test", "class folders",
                    c10::Join(", ", train.classes()) + " as in train/", c10::Join(", ", test.classes()));
  }
  if (train.classes().size() == 1) {
    throw DataError(c10::str(location.path,
                             "/train: expected a folder of images for each of 2 classes or more, such "
                             "as train/cat/ and train/dog/, but got one folder, ",
                             train.classes().front(), "/"));
  }
  const auto num_classes = static_cast<int64_t>(train.classes().size());
  std::vector<std::string> skipped = train.skipped();
  skipped.insert(skipped.end(), test.skipped().begin(), test.skipped().end());
  return {std::move(train), std::move(test), num_classes, std::move(skipped)};
}

ParquetImages open_parquet(const std::string& path, std::vector<std::string> classes,
                           const TrainOptions& options, double memory) {
  return ParquetImages({.paths = {path},
                        .image_column = options.image_column,
                        .label_column = options.label_column,
                        .classes = std::move(classes),
                        .image_size = options.image_size,
                        .channels = channels_of(options.model),
                        .mean = {kMean},
                        .stddev = {kStddev},
                        .skip_bad = options.skip_bad,
                        .apply_exif_orientation = options.exif_orientation,
                        .memory_limit = static_cast<int64_t>(memory)});
}

ImageData read_parquet(const DataLocation& location, const TrainOptions& options) {
  const std::string test_path = options.test_data.empty() ? location.test_path : options.test_data;
  // Images to train and to test on that are in the same files share their memory.
  const double memory = parse_bytes("parquet-memory", options.parquet_memory) / (test_path.empty() ? 1 : 2);
  const ParquetImages train = open_parquet(location.path, {}, options, memory);
  const size_t all = *train.size();
  if (train.classes().size() < 2)
    throw DataError(c10::str(location.path, ": expected images of 2 classes or more, but got ",
                             train.classes().size(), " in column '", options.label_column, "'"));
  const auto limit_train = static_cast<size_t>(options.limit_train);
  const auto limit_test = static_cast<size_t>(options.limit_test);
  const auto num_classes = static_cast<int64_t>(train.classes().size());
  if (test_path.empty()) {
    const auto num_tests =
        std::max<size_t>(static_cast<size_t>(options.test_share * static_cast<double>(all)), 1);
    if (num_tests >= all)
      throw DataError(
          c10::str(location.path, ": expected images to train and to test on, but got ", all, " in all"));
    return {ParquetImagePart(train, {.num_tests = num_tests, .limit = limit_train}),
            ParquetImagePart(train, {.num_tests = num_tests, .takes_tests = true, .limit = limit_test}),
            num_classes, train.skipped()};
  }
  const ParquetImages test = open_parquet(test_path, train.classes(), options, memory);
  if (train.has_names() != test.has_names())
    throw DataError(test_path, "column '" + options.label_column + "'",
                    c10::str(train.has_names() ? "strings" : "numbers", " as in ", location.path),
                    test.has_names() ? "strings" : "numbers");
  std::vector<std::string> skipped = train.skipped();
  skipped.insert(skipped.end(), test.skipped().begin(), test.skipped().end());
  return {ParquetImagePart(train, {.limit = limit_train}), ParquetImagePart(test, {.limit = limit_test}),
          num_classes, std::move(skipped)};
}

void refuse_parquet_options(const DataLocation& location, const TrainOptions& options) {
  const TrainOptions defaults;
  const std::pair<const char*, bool> given[] = {
      {"test-data", options.test_data != defaults.test_data},
      {"test-share", options.test_share != defaults.test_share},
      {"image-column", options.image_column != defaults.image_column},
      {"label-column", options.label_column != defaults.label_column},
      {"parquet-memory", options.parquet_memory != defaults.parquet_memory}};
  for (const auto& [flag, is_given] : given)
    if (is_given)
      throw UsageError(c10::str("--", flag, ": expected it with Parquet files as --data, but got ",
                                location.kind == DataKind::kGenerated ? "generated digits" : location.path));
}

ImageDataset draw(const TrainOptions& options, uint64_t seed, int64_t count) {
  return GeneratedDigits({.count = count,
                          .seed = seed,
                          .image_size = options.image_size,
                          .channels = channels_of(options.model),
                          .mean = {kMean},
                          .stddev = {kStddev}});
}

}  // namespace

int64_t channels_of(ModelKind model) {
  return model == ModelKind::kMobileNetV2 ? 3 : 1;
}

ImageData load_images(const DataLocation& location, const TrainOptions& options) {
  if (options.image_cache == ImageCache::kDevice && location.kind != DataKind::kClassFolders) {
    throw UsageError(c10::str("--image-cache device: expected folders of images as --data, but got ",
                              location.kind == DataKind::kGenerated ? "generated digits" : location.path));
  }
  if (location.kind != DataKind::kParquet) refuse_parquet_options(location, options);
  switch (location.kind) {
    case DataKind::kMnistFiles:
      return {read_mnist(location, options, MnistSplit::kTrain),
              read_mnist(location, options, MnistSplit::kTest)};
    case DataKind::kClassFolders:
      return read_folders(location, options);
    case DataKind::kParquet:
      return read_parquet(location, options);
    case DataKind::kGenerated:
      break;
  }
  return {draw(options, 0, options.limit_train > 0 ? options.limit_train : kGeneratedTrain),
          draw(options, 1, options.limit_test > 0 ? options.limit_test : kGeneratedTest)};
}

Example images_of(const ImageDataset& dataset, const std::vector<size_t>& indices) {
  if (const auto* folder = std::get_if<ImageFolder>(&dataset)) return folder->get_images(indices);
  return std::visit([&](const auto& images) { return images.get_batch(indices); }, dataset);
}

AugmentedDatasetOptions augmentation_of(const TrainOptions& options, int64_t num_classes) {
  const AugmentationChoice& choice = options.augment;
  return {.images = {.crop_padding = choice.crop,
                     .flip = choice.flip,
                     .rotation = choice.rotate,
                     .brightness = choice.brightness,
                     .contrast = choice.contrast,
                     .saturation = choice.saturation,
                     .hue = choice.hue,
                     .mean = {kMean},
                     .stddev = {kStddev},
                     .seed = options.seed},
          .mixup = {.alpha = choice.mixup, .num_classes = num_classes, .seed = options.seed}};
}

std::string class_name(const ImageData& data, int64_t target) {
  if (const auto* part = std::get_if<ParquetImagePart>(&data.train))
    return part->images().classes()[static_cast<size_t>(target)];
  const auto* folder = std::get_if<ImageFolder>(&data.train);
  return folder == nullptr ? std::to_string(target) : folder->classes()[static_cast<size_t>(target)];
}

int64_t size_of(const ImageDataset& dataset) {
  return std::visit([](const auto& images) { return static_cast<int64_t>(*images.size()); }, dataset);
}

DistributedDataset<Example> distribute(const Strategy& strategy, const ImageDataset& dataset,
                                       const DistributeOptions& options) {
  return std::visit([&](const auto& images) { return strategy.distribute_dataset(images, options); },
                    dataset);
}

DistributedDataset<Example> distribute_augmented(const Strategy& strategy, const ImageDataset& dataset,
                                                 const AugmentedDatasetOptions& augmentation,
                                                 const DistributeOptions& options) {
  return std::visit(
      [&](const auto& images) {
        return strategy.distribute_dataset(AugmentedDataset(images, augmentation), options)
            .map(augmented_examples);
      },
      dataset);
}

}  // namespace lockstep::apps
