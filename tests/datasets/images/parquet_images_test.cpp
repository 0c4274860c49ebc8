#include "lockstep/datasets/images/parquet_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/augmented_dataset.h"
#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/strategies/input/indexed_source.h"
#include "lockstep/tests/datasets/images/image_folder_fixture.h"
#include "lockstep/tests/datasets/images/parquet_image_files.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::ArchiveFile;
using testing::encode_jpeg;
using testing::encode_png;
using ::testing::HasSubstr;
using testing::make_image;

static_assert(ChunkedDataset<ParquetImages>);
static_assert(ChunkedDataset<AugmentedDataset<ParquetImages>>);
static_assert(!ChunkedDataset<AugmentedDataset<ImageFolder>>);

/// PNG and JPEG files, grey and coloured, of different sizes.
std::vector<ArchiveFile> mixed_files() {
  std::vector<ArchiveFile> files;
  uint64_t seed = 0;
  for (const std::string name : {"bee", "cat", "dog"}) {
    for (int64_t i = 0; i < 9; ++i) {
      const auto image = make_image(9 + i, 14 - i, i % 2 == 0 ? 3 : 1, ++seed);
      const bool is_png = i % 3 == 0;
      files.push_back({name + "/" + std::to_string(100 + i) + (is_png ? ".png" : ".jpg"),
                       is_png ? encode_png(image) : encode_jpeg(image)});
    }
  }
  return files;
}

class ParquetImagesTest : public ImageFolderTest {
 protected:
  std::string parquet(const std::string& name = "images.parquet") const {
    return folder_.path() + "/" + name;
  }

  /// Writes the same images to a folder and to a Parquet file.
  void write_both(const std::vector<ArchiveFile>& files, bool numbers = false) const {
    write(files);
    write_images(parquet(), rows_of_files(files), 5, numbers);
  }
};

void expect_equal_images(const torch::data::Example<>& got, const torch::data::Example<>& expected) {
  EXPECT_TRUE(got.data.equal(expected.data));
  EXPECT_TRUE(got.target.equal(expected.target));
  EXPECT_EQ(got.data.strides(), expected.data.strides());
}

std::vector<size_t> shuffled_indices(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::shuffle(indices.begin(), indices.end(), std::mt19937(1));
  return indices;
}

TEST_F(ParquetImagesTest, AreTheTensorsOfAFolderOfTheSameFiles) {
  const auto files = mixed_files();
  write_both(files);
  for (const int64_t channels : {1, 3}) {
    const ImageFolder expected(root(), {.image_size = 11, .channels = channels, .mean = {0.2}});
    const ParquetImages images(
        {.paths = {parquet()}, .image_size = 11, .channels = channels, .mean = {0.2}, .num_threads = 3});
    ASSERT_EQ(images.size(), files.size());
    EXPECT_EQ(images.classes(), expected.classes());
    const auto indices = shuffled_indices(files.size());
    expect_equal_images(images.get_batch(indices), expected.get_batch(indices));
    expect_equal_images(images.device_transform(images.get_batch(indices)),
                        expected.device_transform(expected.get_batch(indices)));
  }
}

TEST_F(ParquetImagesTest, KeepTheSizeThatAllFilesHave) {
  write_both(make_files(3, 4), /*numbers=*/true);
  const ImageFolder expected(root(), {.channels = 1});
  const ParquetImages images({.paths = {parquet()}, .channels = 1});
  const auto indices = shuffled_indices(12);
  expect_equal_images(images.get_batch(indices), expected.get_batch(indices));
  EXPECT_EQ(images.classes(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(images.get_batch({}).data.sizes(), at::IntArrayRef({0, 1, 6, 5}));
}

TEST_F(ParquetImagesTest, OfAnotherSizeThanTheFirstAreNamed) {
  auto files = make_files(2, 4);
  files[6].bytes = encode_png(make_image(7, 5, 1));
  write_images(parquet(), rows_of_files(files), 5);
  const ParquetImages images({.paths = {parquet()}, .channels = 1});
  EXPECT_THAT(message_of<ImageError>([&] {
                images.get_batch({0, 6, 7});
              }),
              AllOf(HasSubstr(parquet() + ": row group 1: row 1: size"), HasSubstr("got 5 x 7")));
}

TEST_F(ParquetImagesTest, ThatDoNotDecodeAreNamedOrLeftOut) {
  auto files = mixed_files();
  write(files);
  auto rows = rows_of_files(files);
  const std::vector<size_t> bad{1, 13, 14, 26};
  rows.images[1] = testing::to_bytes("no image");
  rows.images[13].resize(rows.images[13].size() / 2);
  rows.images[14].clear();
  rows.labels[26].clear();
  write_images(parquet(), rows, 5);
  EXPECT_THAT(message_of<DataError>([&] { ParquetImages({.paths = {parquet()}, .image_size = 8}); }),
              HasSubstr(parquet() + ": row group 5: row 1: column 'label'"));
  const ParquetImages some({.paths = {parquet()}, .classes = {"bee", "cat", "dog"}, .image_size = 8});
  EXPECT_THAT(message_of<ImageError>([&] {
                some.get_batch({0, 14, 13});
              }),
              HasSubstr(parquet() + ": row group 2: row 4: signature"));
  EXPECT_THAT(message_of<DataError>([&] { some.get_batch({26}); }), HasSubstr("got nothing"));

  const ParquetImages images({.paths = {parquet()}, .image_size = 8, .skip_bad = true});
  ASSERT_EQ(images.size(), files.size() - bad.size());
  ASSERT_EQ(images.skipped().size(), bad.size());
  EXPECT_THAT(images.skipped()[0], HasSubstr("row group 0: row 1: "));
  EXPECT_THAT(images.skipped()[3], HasSubstr("row group 5: row 1: column 'label'"));
  EXPECT_EQ(images.chunk_sizes(), (std::vector<size_t>{4, 5, 3, 5, 5, 1}));
  const ImageFolder folder(root(), {.image_size = 8});
  std::vector<size_t> of_images, of_folder;
  for (size_t file = 0; file < files.size(); ++file) {
    if (std::count(bad.begin(), bad.end(), file) > 0) continue;
    of_images.push_back(of_images.size());
    of_folder.push_back(file);
  }
  std::reverse(of_images.begin(), of_images.end());
  std::reverse(of_folder.begin(), of_folder.end());
  expect_equal_images(images.get_batch(of_images), folder.get_batch(of_folder));
  EXPECT_NE(images.identity(), some.identity());
}

TEST_F(ParquetImagesTest, TakeTheClassesOfOthers) {
  const auto files = mixed_files();
  write_images(parquet("train.parquet"), rows_of_files(files), 5);
  write_images(parquet("test.parquet"), rows_of_files({files[20], files[10]}), 5);
  const ParquetImages train({.paths = {parquet("train.parquet")}, .image_size = 8});
  const auto open = [&](std::vector<std::string> classes) {
    return ParquetImages(
        {.paths = {parquet("test.parquet")}, .classes = std::move(classes), .image_size = 8});
  };
  EXPECT_TRUE(open(train.classes()).get_batch({0, 1}).target.equal(torch::tensor({2, 1}, torch::kLong)));
  EXPECT_TRUE(open({}).get_batch({0, 1}).target.equal(torch::tensor({1, 0}, torch::kLong)));
  EXPECT_THAT(message_of<DataError>([&] {
                open({"bee", "cat"}).get_batch({0});
              }),
              AllOf(HasSubstr("row group 0: row 0: column 'label': expected one of the 2 classes bee, cat"),
                    HasSubstr("got 'dog'")));
}

TEST_F(ParquetImagesTest, RefuseColumnsOfOtherTypesAndNegativeLabels) {
  ParquetWriter writer({.path = parquet(),
                        .columns = {{.name = "image", .type = at::kLong},
                                    {.name = "label", .type = at::kFloat},
                                    {.name = "class", .type = at::kLong},
                                    bytes_column("file")}});
  writer.append({{.values = torch::ones({2}, torch::kLong), .offsets = {}},
                 {.values = torch::ones({2}), .offsets = {}},
                 {.values = torch::tensor({3, -1}, torch::kLong), .offsets = {}},
                 bytes_values({encode_png(make_image(3, 3, 1)), {}})});
  writer.close();
  const auto message = [&](const std::string& image, const std::string& label) {
    return message_of<DataError>(
        [&] { ParquetImages({.paths = {parquet()}, .image_column = image, .label_column = label}); });
  };
  EXPECT_THAT(message("image", "class"), HasSubstr("row group 0: row 1: column 'class': expected 0 or more"));
  EXPECT_THAT(
      message("file", "label"),
      HasSubstr(parquet() + ": column 'label': expected whole numbers or strings as labels, but got Float"));
  EXPECT_THAT(message("file", "none"), HasSubstr("expected one named 'none'"));
  EXPECT_THAT(message_of<DataError>([&] {
                ParquetImages(
                    {.paths = {parquet()}, .label_column = "class", .classes = {"a", "b"}, .image_size = 3});
              }),
              HasSubstr(parquet() + ": column 'image': expected images"));
  EXPECT_THROW(ParquetImages({.paths = {parquet()}, .channels = 2}), std::invalid_argument);
  EXPECT_THROW(ParquetImages({.paths = {parquet()}, .num_threads = -1}), std::invalid_argument);
}

using Images = std::vector<at::Tensor>;  // of the steps, all replicas one after another

/// Returns the images and the targets of one epoch.
template <typename Batches>
Images images_of_steps(Batches& batches) {
  Images steps;
  for (const auto& batch : batches) {
    for (const torch::data::Example<>& shard : batch.local_values())
      steps.push_back(at::cat({shard.data.flatten(1), shard.target.unsqueeze(1).to(at::kFloat)}, 1));
  }
  return steps;
}

TEST_F(ParquetImagesTest, AreChangedAlikeOnAnyNumberOfReplicasAndGoOnAnywhere) {
  write_images(parquet("a.parquet"), rows_of_files(mixed_files()), 4);
  write_images(parquet("b.parquet"), rows_of_files(mixed_files()), 7);
  const auto augmented = [&] {
    const ParquetImages images({.paths = {parquet("[ab].parquet")}, .image_size = 8, .lanes = 2});
    return AugmentedDataset(images, {.images = {.crop_padding = 1, .flip = true, .seed = 5}});
  };
  const DistributeOptions options{.global_batch_size = 8, .shuffle_seed = 2};
  std::vector<at::Tensor> expected;
  {
    OnReplicas one(1);
    auto batches = one->distribute_dataset(augmented(), options).map(augmented_examples);
    for (int epoch = 0; epoch < 2; ++epoch) expected.push_back(at::cat(images_of_steps(batches)));
  }
  EXPECT_FALSE(expected[0].equal(expected[1]));
  for (const int replicas : {2, 3}) {
    OnReplicas several(replicas);
    auto batches = several->distribute_dataset(augmented(), options).map(augmented_examples);
    EXPECT_TRUE(at::cat(images_of_steps(batches)).equal(expected[0]));
    Images second;
    int steps = 0;
    for (const auto& batch : batches) {
      for (const torch::data::Example<>& shard : batch.local_values())
        second.push_back(at::cat({shard.data.flatten(1), shard.target.unsqueeze(1).to(at::kFloat)}, 1));
      if (++steps == 3) break;
    }
    auto rest = several->distribute_dataset(augmented(), options).map(augmented_examples);
    rest.restore(batches.position());
    for (const auto& shard : images_of_steps(rest)) second.push_back(shard);
    EXPECT_TRUE(at::cat(second).equal(expected[1])) << replicas;
  }
}

TEST_F(ParquetImagesTest, ComeInTheOrderOfOneReplicaToSeveralWorkers) {
  write_images(parquet(), rows_of_files(mixed_files()), 4);
  const ParquetImagesOptions images{.paths = {parquet()}, .image_size = 8, .lanes = 2};
  const DistributeOptions options{.global_batch_size = 4, .shuffle_seed = 2};
  std::vector<at::Tensor> expected;
  {
    OnReplicas one(1);
    auto batches = one->distribute_dataset(ParquetImages(images), options);
    expected = images_of_steps(batches);
  }
  std::vector<Images> steps(2);
  for (const auto& error : run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
         auto batches = strategy.distribute_dataset(ParquetImages(images), options);
         steps[static_cast<size_t>(strategy.cluster_resolver()->rank())] = images_of_steps(batches);
       }))
    EXPECT_FALSE(error);
  ASSERT_EQ(steps[0].size(), expected.size());
  ASSERT_EQ(steps[1].size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_TRUE(at::cat({steps[0][step], steps[1][step]}).equal(expected[step]));
}

}  // namespace
}  // namespace lockstep
