#include "lockstep/datasets/images/internal/image_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::encode_png;
using ::testing::HasSubstr;
using testing::make_image;
using ::testing::Property;
using testing::TemporaryFolder;
using ::testing::Throws;

constexpr int64_t kImageBytes = 6 * 5;  // for a grey image

Bytes grey_png(uint64_t seed) {
  return encode_png(make_image(6, 5, 1, seed));
}

void write_images(const TemporaryFolder& folder, int count, uint64_t first_seed = 0) {
  for (int i = 0; i < count; ++i) {
    folder.write("root/0/" + std::to_string(100 + i) + ".png",
                 grey_png(first_seed + static_cast<uint64_t>(i)));
  }
}

Bytes read_image(const ImageStore& store, size_t index) {
  Bytes pixels(store.layout().bytes());
  store.copy_image(index, pixels.data());
  return pixels;
}

void expect_error_of(const ImageStore& store, size_t index, const std::string& text) {
  EXPECT_THAT([&] { read_image(store, index); },
              Throws<DataError>(Property(&DataError::what, HasSubstr(text))));
}

ImageStoreOptions grey(int64_t cache_bytes) {
  return {.channels = 1, .num_threads = 2, .cache_bytes = cache_bytes};
}

TEST(ImageStore, CachesAsManyImagesAsFit) {
  const TemporaryFolder folder;
  write_images(folder, 5);
  const auto num_cached = [&](const ImageStoreOptions& options) {
    return ImageStore(list_class_folder(folder.path() + "/root"), options).num_cached();
  };
  EXPECT_EQ(num_cached(grey(0)), 0U);
  EXPECT_EQ(num_cached(grey(kImageBytes - 1)), 0U);
  EXPECT_EQ(num_cached(grey(kImageBytes)), 1U);
  EXPECT_EQ(num_cached(grey(4 * kImageBytes - 1)), 3U);
  EXPECT_EQ(num_cached(grey(5 * kImageBytes)), 5U);
  EXPECT_EQ(num_cached(grey(1 << 20)), 5U);
  // Grey images are cached with one channel if all of them fit, and with three if not.
  EXPECT_EQ(num_cached({.channels = 3, .cache_bytes = 5 * kImageBytes}), 5U);
  EXPECT_EQ(num_cached({.channels = 3, .cache_bytes = 5 * kImageBytes - 1}), 1U);
}

TEST(ImageStore, DecodesNoCachedFileAgain) {
  const TemporaryFolder folder;
  write_images(folder, 5);
  const ImageStore all(list_class_folder(folder.path() + "/root"), grey(1 << 20));
  const ImageStore three(list_class_folder(folder.path() + "/root"), grey(3 * kImageBytes));
  ASSERT_EQ(three.num_cached(), 3U);
  write_images(folder, 5, /*first_seed=*/50);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read_image(all, i), make_image(6, 5, 1, i).pixels) << i;
    EXPECT_EQ(read_image(three, i), make_image(6, 5, 1, i < 3 ? i : 50 + i).pixels) << i;
  }
  std::filesystem::remove_all(folder.path() + "/root");
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(read_image(all, i), make_image(6, 5, 1, i).pixels) << i;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read_image(three, i), make_image(6, 5, 1, i).pixels) << i;
  expect_error_of(three, 3, "0/103.png: cannot open");
}

TEST(ImageStore, DecodesAtEveryAccessWithoutACache) {
  const TemporaryFolder folder;
  write_images(folder, 2);
  const ImageStore store(list_class_folder(folder.path() + "/root"), grey(0));
  EXPECT_EQ(read_image(store, 1), make_image(6, 5, 1, 1).pixels);
  write_images(folder, 2, /*first_seed=*/50);
  EXPECT_EQ(read_image(store, 1), make_image(6, 5, 1, 51).pixels);
  std::filesystem::remove_all(folder.path() + "/root");
  expect_error_of(store, 0, "0/100.png: cannot open");
  expect_error_of(store, 1, "0/101.png: cannot open");
}

TEST(ImageStore, ReadsAnArchiveBeyondTheCacheOnly) {
  const TemporaryFolder folder;
  // Long enough that the buffer filled for the first image does not hold the second one.
  const Bytes archive = testing::make_raw_zip({testing::stored_entry("0/1.png", grey_png(0)),
                                               testing::stored_entry("0/between.txt", Bytes(100000)),
                                               testing::stored_entry("0/2.png", grey_png(1))});
  for (const size_t num_cached : {0U, 1U, 2U}) {
    SCOPED_TRACE(num_cached);
    const std::string path = folder.write("packed" + std::to_string(num_cached) + ".zip", archive);
    const ImageStore store(list_class_folder(path), grey(static_cast<int64_t>(num_cached) * kImageBytes));
    ASSERT_EQ(store.num_cached(), num_cached);
    EXPECT_EQ(read_image(store, 0), make_image(6, 5, 1, 0).pixels);
    std::filesystem::resize_file(path, 0);
    for (size_t i = 0; i < num_cached; ++i) {
      EXPECT_EQ(read_image(store, i), make_image(6, 5, 1, i).pixels) << i;
    }
    if (num_cached < 2) expect_error_of(store, 1, "packed" + std::to_string(num_cached) + ".zip/0/2.png");
  }
}

TEST(ImageStore, CachesWhatRemainsOfTheFirstImagesWhereBadOnesAreLeftOut) {
  const TemporaryFolder folder;
  write_images(folder, 5);
  folder.write("root/0/101.png", Bytes{});
  ImageStoreOptions options = grey(3 * kImageBytes);
  options.skip_bad = true;
  const ImageStore store(list_class_folder(folder.path() + "/root"), options);
  ASSERT_EQ(store.folder().files.size(), 4U);
  ASSERT_EQ(store.num_cached(), 2U);
  std::filesystem::remove_all(folder.path() + "/root");
  EXPECT_EQ(read_image(store, 0), make_image(6, 5, 1, 0).pixels);
  EXPECT_EQ(read_image(store, 1), make_image(6, 5, 1, 2).pixels);
  expect_error_of(store, 2, "0/103.png: cannot open");
}

TEST(ImageStore, NamesTheFirstBadFileWhereImagesAreUnlikeToo) {
  const TemporaryFolder folder;
  write_images(folder, 130);
  folder.write("root/0/110.png", encode_png(make_image(7, 5, 1, 1)));
  for (const std::string damaged : {"120", "170"}) folder.write("root/0/" + damaged + ".png", Bytes{1, 2, 3});
  auto options = grey(1 << 20);
  options.image_size = 6;
  // Threads working on blocks in parallel reach these files in a different order each time.
  for (int repetition = 0; repetition < 20; ++repetition) {
    EXPECT_THAT([&] { ImageStore(list_class_folder(folder.path() + "/root"), options); },
                Throws<DataError>(Property(&DataError::what, HasSubstr("120.png"))));
  }
}

}  // namespace
}  // namespace lockstep
