#include "lockstep/apps/train_images/data/image_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/datasets/images/parquet_image_files.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using testing::encode_png;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_image;
using testing::TemporaryFolder;
using testing::to_bytes;

DataLocation class_folders(const TemporaryFolder& folder) {
  return {.kind = DataKind::kClassFolders, .path = folder.path(), .why = "", .hint = ""};
}

/// The first global batch, in the dataset's order.
Example first_batch(const ImageDataset& dataset, int64_t size) {
  const DefaultStrategy strategy;
  auto batches = distribute(strategy, dataset, {.global_batch_size = size});
  return (*batches.begin()).local_values()[0];
}

TEST(LoadImages, DrawsAsManyDigitsAsTheLimitsSayAndOthersToTestOn) {
  const auto data = load_images({}, {.limit_train = 30, .limit_test = 20});
  EXPECT_EQ(size_of(data.train), 30);
  EXPECT_EQ(size_of(data.test), 20);
  EXPECT_EQ(data.num_classes, 10);
  EXPECT_THAT(data.skipped, IsEmpty());
  EXPECT_EQ(size_of(load_images({}, {}).train), 60000);
  EXPECT_EQ(size_of(load_images({}, {}).test), 10000);
  EXPECT_FALSE(first_batch(data.train, 20).data.equal(first_batch(data.test, 20).data));
}

TEST(LoadImages, GivesEachModelItsChannelsAndTheSizeAskedFor) {
  const TrainOptions grey{.limit_train = 4, .limit_test = 4, .model = ModelKind::kSimpleCnn};
  EXPECT_EQ(first_batch(load_images({}, grey).train, 3).data.sizes(), at::IntArrayRef({3, 1, 28, 28}));
  const TrainOptions colour{
      .limit_train = 4, .limit_test = 4, .model = ModelKind::kMobileNetV2, .image_size = 40};
  EXPECT_EQ(first_batch(load_images({}, colour).train, 3).data.sizes(), at::IntArrayRef({3, 3, 40, 40}));
}

TEST(LoadImages, ReadsTrainAndTestFoldersWithTheirOwnLimits) {
  const TemporaryFolder folder;
  for (const std::string name : {"cat/a.png", "cat/b.png", "cat/c.png", "dog/a.png", "dog/b.png"}) {
    folder.write("train/" + name, encode_png(make_image(28, 28, 1)));
    folder.write("test/" + name, encode_png(make_image(28, 28, 1)));
  }
  const auto data = load_images(class_folders(folder), {.limit_train = 4, .limit_test = 2});
  EXPECT_EQ(size_of(data.train), 4);
  EXPECT_EQ(size_of(data.test), 2);
  EXPECT_EQ(data.num_classes, 2);
}

TEST(LoadImages, TakesOfMnistsFilesAsManyAsEachLimitSays) {
  const TemporaryFolder folder;
  for (const std::string split : {"train", "t10k"}) {
    // Three 1x1 images.
    folder.write(split + "-images-idx3-ubyte",
                 Bytes{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 7, 8, 9});
    folder.write(split + "-labels-idx1-ubyte", Bytes{0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2});
  }
  const DataLocation location{.kind = DataKind::kMnistFiles, .path = folder.path(), .why = "", .hint = ""};
  const auto data = load_images(location, {.limit_train = 2, .limit_test = 1});
  EXPECT_EQ(size_of(data.train), 2);
  EXPECT_EQ(size_of(data.test), 1);
  EXPECT_EQ(size_of(load_images(location, {}).test), 3);
}

TEST(LoadImages, RefusesToTestOnOtherClassesThanItTrainsOn) {
  const TemporaryFolder folder;
  for (const std::string name : {"train/cat/a.png", "train/dog/a.png", "test/cat/a.png", "test/owl/a.png"}) {
    folder.write(name, encode_png(make_image(28, 28, 1)));
  }
  try {
    load_images(class_folders(folder), {});
    FAIL() << "took them";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder.path() + "/test"), HasSubstr("cat, dog as in train/"),
                                    HasSubstr("cat, owl")));
  }
}

TEST(LoadImages, TurnsPhotosUprightWhereAskedTo) {
  const TemporaryFolder folder;
  // EXIF's orientation 3: upside down.
  const Bytes exif = {'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0};
  for (const std::string name : {"train/cat/a.png", "train/dog/a.png", "test/cat/a.png", "test/dog/a.png"}) {
    folder.write(name, testing::with_png_chunk(encode_png(make_image(28, 28, 1)), "eXIf", exif));
  }
  const auto stored = load_images(class_folders(folder), {});
  const auto upright = load_images(class_folders(folder), {.exif_orientation = true});
  for (const auto part : {&ImageData::train, &ImageData::test}) {
    EXPECT_TRUE(images_of(upright.*part, {0}).data.equal(images_of(stored.*part, {0}).data.rot90(2, {2, 3})));
  }
}

TEST(LoadImages, RefusesASingleClass) {
  const TemporaryFolder folder;
  for (const std::string part : {"train/", "test/"})
    folder.write(part + "images/a.png", encode_png(make_image(28, 28, 1)));
  try {
    load_images(class_folders(folder), {});
    FAIL() << "took it";
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()),
              folder.path() +
                  "/train: expected a folder of images for each of 2 classes or more, such as "
                  "train/cat/ and train/dog/, but got one folder, images/");
  }
}

TEST(LoadImages, CachesImagesOfFoldersOnDevicesWhereAskedTo) {
  const TemporaryFolder folder;
  for (const std::string part : {"train/", "test/"}) {
    folder.write(part + "cat/a.png", encode_png(make_image(28, 28, 1, 1)));
    folder.write(part + "dog/a.png", encode_png(make_image(28, 28, 1, 2)));
  }
  const auto host = load_images(class_folders(folder), {});
  const auto device = load_images(class_folders(folder), {.image_cache = ImageCache::kDevice});
  for (const auto part : {&ImageData::train, &ImageData::test}) {
    EXPECT_EQ(std::get<ImageFolder>(device.*part).get_batch({1}).data.scalar_type(), torch::kLong);
    EXPECT_TRUE(first_batch(device.*part, 2).data.equal(first_batch(host.*part, 2).data));
    EXPECT_TRUE(images_of(device.*part, {1, 0}).data.equal(images_of(host.*part, {1, 0}).data));
    EXPECT_TRUE(images_of(device.*part, {1, 0}).target.equal(torch::tensor({1, 0})));
  }
}

TEST(LoadImages, RefusesToCacheOtherImagesOnDevices) {
  const TrainOptions options{.limit_train = 4, .limit_test = 4, .image_cache = ImageCache::kDevice};
  const DataLocation files{.kind = DataKind::kMnistFiles, .path = "some/where", .why = "", .hint = ""};
  const std::vector<std::pair<DataLocation, std::string>> cases{{{}, "generated digits"},
                                                                {files, files.path}};
  for (const auto& [location, given] : cases) {
    try {
      load_images(location, options);
      FAIL() << "took them";
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), "--image-cache device: expected folders of images as --data, but got " + given);
    }
  }
}

TEST(LoadImages, ListsTheDamagedImagesThatItSkipsOrNamesTheFirst) {
  const TemporaryFolder folder;
  for (const std::string part : {"train/", "test/"}) {
    folder.write(part + "cat/a.png", encode_png(make_image(28, 28, 1)));
    folder.write(part + "cat/b.png", to_bytes("no image"));
    folder.write(part + "dog/a.png", encode_png(make_image(28, 28, 1)));
  }
  const auto data = load_images(class_folders(folder), {.skip_bad = true});
  EXPECT_THAT(data.skipped, ElementsAre(HasSubstr("train/cat/b.png: signature: expected that of a PNG"),
                                        HasSubstr("test/cat/b.png: signature")));
  EXPECT_EQ(size_of(data.train), 2);
  EXPECT_EQ(size_of(data.test), 2);
  try {
    load_images(class_folders(folder), {});
    FAIL() << "took them";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder.path() + "/train/cat/b.png"));
  }
}

#ifdef LOCKSTEP_TEST_ARROW
/// Writes the images of files `train/<class>/<name>` to one Parquet file, in the order of a folder.
DataLocation parquet_of(const TemporaryFolder& folder, const std::string& name,
                        const std::vector<std::string>& files, int64_t rows_per_group = 4) {
  ImageRows rows;
  for (const auto& file : files) {
    const auto image = make_image(28, 28, 1, std::hash<std::string>()(file));
    folder.write(file, encode_png(image));
    rows.images.push_back(encode_png(image));
    rows.labels.push_back(file.substr(file.find('/') + 1, 3));
  }
  write_images(folder.file(name), rows, rows_per_group);
  return {.kind = DataKind::kParquet, .path = folder.file(name), .why = "", .hint = ""};
}

std::vector<std::string> files_of(const std::string& part, int per_class) {
  std::vector<std::string> files;
  for (const std::string name : {"cat", "dog", "owl"})
    for (int i = 0; i < per_class; ++i)
      files.push_back(part + "/" + name + "/" + std::to_string(100 + i) + ".png");
  return files;
}

TEST(LoadImages, OfParquetFilesEqualThoseOfFolders) {
  const TemporaryFolder folder;
  DataLocation location = parquet_of(folder, "train.parquet", files_of("train", 5));
  location.test_path = parquet_of(folder, "test.parquet", files_of("test", 2)).path;
  for (const auto model : {ModelKind::kSimpleCnn, ModelKind::kMobileNetV2}) {
    const TrainOptions options{.model = model, .image_size = 28};
    const auto data = load_images(location, options);
    const auto expected = load_images(class_folders(folder), options);
    EXPECT_EQ(data.num_classes, 3);
    EXPECT_EQ(class_name(data, 1), "dog");
    for (const auto part : {&ImageData::train, &ImageData::test}) {
      const int64_t count = size_of(expected.*part);
      ASSERT_EQ(size_of(data.*part), count);
      const Example got = first_batch(data.*part, count), of_folder = first_batch(expected.*part, count);
      EXPECT_TRUE(got.data.equal(of_folder.data));
      EXPECT_TRUE(got.target.equal(of_folder.target));
    }
  }
  const TrainOptions given{.test_data = location.test_path, .limit_train = 7, .limit_test = 1};
  location.test_path = "";
  EXPECT_EQ(size_of(load_images(location, given).train), 7);
  EXPECT_EQ(size_of(load_images(location, given).test), 1);
}

TEST(LoadImages, OfParquetFilesToTestOnAreSpreadOverAllClasses) {
  const TemporaryFolder folder;
  const auto location = parquet_of(folder, "all.parquet", files_of("train", 13));
  const auto all = first_batch(
      ImageFolder(folder.path() + "/train", {.channels = 1, .mean = {0.1307}, .stddev = {0.3081}}), 39);
  for (const double share : {0.01, 0.1, 0.25, 0.5, 0.9}) {
    const auto data = load_images(location, {.test_share = share});
    const auto num_tests = std::max<int64_t>(static_cast<int64_t>(share * 39), 1);
    ASSERT_EQ(size_of(data.test), num_tests);
    ASSERT_EQ(size_of(data.train), 39 - num_tests);
    // Each image once, in the order of the files.
    std::vector<size_t> to_test;
    for (size_t i = 0; i < 39; ++i)
      if ((i + 1) * static_cast<size_t>(num_tests) / 39 > i * static_cast<size_t>(num_tests) / 39)
        to_test.push_back(i);
    std::vector<int64_t> tests(to_test.begin(), to_test.end()), others;
    for (int64_t i = 0; i < 39; ++i)
      if (std::count(tests.begin(), tests.end(), i) == 0) others.push_back(i);
    EXPECT_TRUE(first_batch(data.test, 39).data.equal(all.data.index_select(0, torch::tensor(tests))));
    EXPECT_TRUE(first_batch(data.train, 39).data.equal(all.data.index_select(0, torch::tensor(others))));
    EXPECT_TRUE(first_batch(data.train, 39).target.equal(all.target.index_select(0, torch::tensor(others))));
    for (const auto* images : {&data.train, &data.test}) {
      const auto sizes = std::get<ParquetImagePart>(*images).chunk_sizes();
      EXPECT_EQ(sizes.size(), 10U);
      EXPECT_EQ(static_cast<int64_t>(std::accumulate(sizes.begin(), sizes.end(), size_t{0})),
                size_of(*images));
      // Images of a chunk are within it.
      size_t index = 0, begin = 0;
      const auto& places = images == &data.train ? others : tests;
      for (const size_t size : sizes) {
        for (size_t i = 0; i < size; ++i, ++index)
          EXPECT_EQ(static_cast<size_t>(places[index]) / 4, begin / 4);
        begin += 4;
      }
    }
    const auto few = load_images(location, {.test_share = share, .limit_train = 1, .limit_test = 1});
    EXPECT_EQ(size_of(few.train), 1);
    EXPECT_EQ(size_of(few.test), 1);
  }
}

TEST(LoadImages, RefusesParquetFilesOfOneClassAndOfOneImage) {
  const TemporaryFolder folder;
  const auto message = [&](const std::vector<std::string>& files) {
    return message_of<DataError>([&] { load_images(parquet_of(folder, "a.parquet", files), {}); });
  };
  EXPECT_THAT(message({"train/cat/1.png", "train/cat/2.png"}),
              HasSubstr("a.parquet: expected images of 2 classes or more, but got 1 in column 'label'"));
  const auto two = parquet_of(folder, "b.parquet", {"train/cat/1.png", "train/dog/2.png"});
  EXPECT_EQ(size_of(load_images(two, {}).train), 1);
  EXPECT_THAT(message_of<DataError>([&] { load_images(two, {.label_column = "kind"}); }),
              HasSubstr("expected one named 'kind', but got image, label"));
}
#endif

TEST(LoadImages, RefusesOptionsOfParquetFilesForOthers) {
  const TemporaryFolder folder;
  try {
    load_images(class_folders(folder), {.label_column = "kind"});
    FAIL() << "took it";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(),
              "--label-column: expected it with Parquet files as --data, but got " + folder.path());
  }
  EXPECT_EQ(message_of<UsageError>([] { load_images({}, {.test_share = 0.5}); }),
            "--test-share: expected it with Parquet files as --data, but got generated digits");
}

/// The batches of some epochs of a training without an end, over all replicas, from a step on.
std::vector<Example> augmented_batches(const MirroredStrategy& strategy, const ImageDataset& images,
                                       const TrainOptions& options, int64_t first_step, int64_t end_step) {
  auto batches = distribute_augmented(strategy, images, augmentation_of(options, 10),
                                      {.global_batch_size = 7, .shuffle_seed = options.seed})
                     .repeat();
  batches.restore({.epoch = 0, .step = first_step});
  std::vector<Example> whole;
  auto batch = batches.begin();
  for (int64_t step = first_step; step < end_step; ++step, ++batch) {
    std::vector<torch::Tensor> data, target;
    for (const auto& shard : (*batch).local_values()) {
      data.push_back(shard.data);
      target.push_back(shard.target);
    }
    whole.emplace_back(torch::cat(data), torch::cat(target));
  }
  return whole;
}

void expect_same_bits(const std::vector<Example>& batches, const Example* expected) {
  for (const auto& batch : batches) {
    EXPECT_TRUE(batch.data.equal(expected->data));
    EXPECT_TRUE(batch.target.equal(expected->target));
    ++expected;
  }
}

std::vector<std::string> cpus(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back("cpu:" + std::to_string(i));
  return devices;
}

// 20 images in batches of 7, 7 and 6: four replicas have shards of 2, 2, 2 and 1, and of 2, 2, 2 and 0.
TEST(AugmentedImages, AreTheSameBitsOnAnyNumberOfReplicasAndAfterAResume) {
  constexpr int64_t kSteps = 8;
  const std::vector<AugmentationChoice> choices{
      {.crop = 4, .flip = true},
      {.crop = 2, .flip = true, .rotate = 20, .brightness = 0.3, .contrast = 0.4},
      {.flip = true, .mixup = 0.4},
      {.crop = 2, .rotate = 30, .contrast = 0.4, .saturation = 0.4, .hue = 0.1, .mixup = 1}};
  for (const auto model : {ModelKind::kSimpleCnn, ModelKind::kMobileNetV2}) {
    for (const auto& choice : choices) {
      TrainOptions options{.limit_train = 20, .limit_test = 1, .model = model, .image_size = 34, .seed = 3};
      options.augment = choice;
      const auto images = load_images({}, options).train;
      MirroredStrategy one(cpus(1));
      const auto expected = augmented_batches(one, images, options, 0, kSteps);
      for (const int replicas : {2, 3, 4}) {
        MirroredStrategy strategy(cpus(replicas));
        expect_same_bits(augmented_batches(strategy, images, options, 0, kSteps), expected.data());
        // Resumed in the middle of the first and of the second epoch.
        for (const int64_t step : {1, 4})
          expect_same_bits(augmented_batches(strategy, images, options, step, kSteps),
                           &expected[static_cast<size_t>(step)]);
      }
    }
  }
}

TEST(AugmentedImages, AreDrawnAnewInEveryEpochAndForEverySeed) {
  TrainOptions options{.limit_train = 7, .limit_test = 1, .augment = {.crop = 4, .flip = true}};
  const auto images = load_images({}, options).train;
  MirroredStrategy one(cpus(1));
  const auto sums = [&](const Example& batch) { return std::get<0>(batch.data.sum({1, 2, 3}).sort()); };
  const auto batches = augmented_batches(one, images, options, 0, 2);  // each holds all images
  EXPECT_FALSE(sums(batches[0]).equal(sums(batches[1])));
  options.seed = 2;
  EXPECT_FALSE(sums(augmented_batches(one, images, options, 0, 1)[0]).equal(sums(batches[0])));
}

TEST(AugmentedImages, ArePaddedInBlack) {
  TrainOptions options{.limit_train = 7, .limit_test = 1, .augment = {.crop = 27}};
  const auto images = load_images({}, options).train;
  MirroredStrategy one(cpus(1));
  const auto batch = augmented_batches(one, images, options, 0, 1)[0];
  // The digits' own background is black, too.
  const auto plain = first_batch(images, 7).data;
  const auto black = plain.min();
  const auto black_share = [&](const torch::Tensor& pixels) {
    return pixels.isclose(black).to(torch::kDouble).mean().item<double>();
  };
  EXPECT_TRUE(batch.data.min().allclose(black));
  EXPECT_GT(black_share(batch.data), black_share(plain));
  EXPECT_FALSE(batch.data.eq(0).any().item<bool>()) << "the mean of the normalised images";
}

TEST(AugmentedImages, MayBeGatheredOnTheDevice) {
  const TemporaryFolder folder;
  for (const std::string part : {"train/", "test/"}) {
    for (int i = 0; i < 5; ++i) {
      folder.write(part + "cat/" + std::to_string(i) + ".png", encode_png(make_image(28, 28, 1, 2 * i)));
      folder.write(part + "dog/" + std::to_string(i) + ".png", encode_png(make_image(28, 28, 1, 2 * i + 1)));
    }
  }
  TrainOptions options{.augment = {.crop = 3, .flip = true, .mixup = 1}};
  const auto host = load_images(class_folders(folder), options);
  options.image_cache = ImageCache::kDevice;
  const auto device = load_images(class_folders(folder), options);
  MirroredStrategy two(cpus(2));
  expect_same_bits(augmented_batches(two, device.train, options, 0, 4),
                   augmented_batches(two, host.train, options, 0, 4).data());
}

}  // namespace
}  // namespace lockstep::apps
