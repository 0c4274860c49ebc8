#include "lockstep/apps/train_images/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/tests/apps/train_images/options/parsed_arguments.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DataFlags, ReadsEveryDataFlag) {
  const auto options = options_of({"--data", "some/where", "--limit-train", "100", "--limit-test", "10",
                                   "--skip-bad", "--exif-orientation", "--image-cache", "device"});
  EXPECT_EQ(options.data, "some/where");
  EXPECT_EQ(options.limit_train, 100);
  EXPECT_EQ(options.limit_test, 10);
  EXPECT_TRUE(options.skip_bad);
  EXPECT_TRUE(options.exif_orientation);
  EXPECT_EQ(options.image_cache, ImageCache::kDevice);
}

TEST(DataFlags, ReadsEveryFlagOfParquetFiles) {
  const auto options =
      options_of({"--data", "s3://bucket/a@b/*.parquet", "--test-data", "tests.parquet", "--image-column",
                  "photo.bytes", "--label-column", "kind", "--parquet-memory", "2GiB"});
  EXPECT_EQ(options.data, "s3://bucket/a@b/*.parquet");
  EXPECT_EQ(options.test_data, "tests.parquet");
  EXPECT_EQ(options.image_column, "photo.bytes");
  EXPECT_EQ(options.label_column, "kind");
  EXPECT_EQ(options.parquet_memory, "2GiB");
  EXPECT_EQ(options_of({"--data", "a.parquet", "--test-share", "0.25"}).test_share, 0.25);
  EXPECT_THAT(refusal({"--data", "a.parquet", "--image-column", ""}), HasSubstr("the name of a column"));
  EXPECT_THAT(refusal({"--data", "a.parquet", "--parquet-memory", "much"}), HasSubstr("--parquet-memory"));
  for (const std::string flag : {"--data", "--test-data"}) {
    const std::string message = refusal({"--data", "a", flag, "s3://me:secret@bucket/images"});
    EXPECT_THAT(message, HasSubstr(flag + ": expected URIs without credentials"));
    EXPECT_THAT(message, Not(HasSubstr("secret@")));
  }
}

TEST(DataFlags, ReadsEveryModelFlag) {
  const auto options = options_of({"--model", "mobilenet_v2", "--image-size", "96", "--head",
                                   "flattened_dense", "--sync-batch-norm", "--refresh-batch-norm", "never"});
  EXPECT_EQ(options.model, ModelKind::kMobileNetV2);
  EXPECT_EQ(options.image_size, 96);
  EXPECT_EQ(options.head, HeadKind::kFlattenedDense);
  EXPECT_TRUE(options.sync_batch_norm);
  EXPECT_EQ(options.refresh_batch_norm, BatchNormRefresh::kNever);
}

TEST(DataFlags, TakesTheModelsOwnImageSize) {
  EXPECT_EQ(options_of({"--model", "mobilenet_v2"}).image_size, 64);
  EXPECT_EQ(options_of({"--model", "simple_cnn"}).image_size, 28);
}

TEST(DataFlags, RefusesImageSizesThatTheModelCannotTake) {
  EXPECT_EQ(refusal({"--image-size", "3"}),
            "--image-size: expected a whole number from 4 to 2048, but got '3'");
  for (const std::string head : {"global_average", "flattened_dense"}) {
    EXPECT_EQ(refusal({"--model", "mobilenet_v2", "--head", head, "--image-size", "32"}),
              "--image-size: expected a whole number from 33 to 2048, but got '32'");
    EXPECT_EQ(options_of({"--model", "mobilenet_v2", "--head", head, "--image-size", "33"}).image_size, 33);
  }
}

}  // namespace
}  // namespace lockstep::apps
