#include "lockstep/datasets/images/internal/image_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <latch>
#include <thread>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
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
    folder.write("tree/0/" + std::to_string(100 + i) + ".png",
                 grey_png(first_seed + static_cast<uint64_t>(i)));
  }
}

Bytes read_image(const ImageStore& store, size_t index) {
  Bytes pixels(store.layout().bytes());
  store.copy_images({&index, 1}, pixels.data());
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
    return ImageStore(list_class_folder(folder.path() + "/tree"), options).num_cached();
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
  const ImageStore all(list_class_folder(folder.path() + "/tree"), grey(1 << 20));
  const ImageStore three(list_class_folder(folder.path() + "/tree"), grey(3 * kImageBytes));
  ASSERT_EQ(three.num_cached(), 3U);
  write_images(folder, 5, /*first_seed=*/50);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read_image(all, i), make_image(6, 5, 1, i).pixels) << i;
    EXPECT_EQ(read_image(three, i), make_image(6, 5, 1, i < 3 ? i : 50 + i).pixels) << i;
  }
  std::filesystem::remove_all(folder.path() + "/tree");
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(read_image(all, i), make_image(6, 5, 1, i).pixels) << i;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read_image(three, i), make_image(6, 5, 1, i).pixels) << i;
  expect_error_of(three, 3, "0/103.png: cannot open");
}

TEST(ImageStore, DecodesAtEveryAccessWithoutACache) {
  const TemporaryFolder folder;
  write_images(folder, 2);
  const ImageStore store(list_class_folder(folder.path() + "/tree"), grey(0));
  EXPECT_EQ(read_image(store, 1), make_image(6, 5, 1, 1).pixels);
  write_images(folder, 2, /*first_seed=*/50);
  EXPECT_EQ(read_image(store, 1), make_image(6, 5, 1, 51).pixels);
  std::filesystem::remove_all(folder.path() + "/tree");
  expect_error_of(store, 0, "0/100.png: cannot open");
  expect_error_of(store, 1, "0/101.png: cannot open");
}

/// Reads images at once, one after another.
Bytes read_images(const ImageStore& store, const std::vector<size_t>& indices) {
  Bytes pixels(indices.size() * store.layout().bytes());
  store.copy_images(indices, pixels.data());
  return pixels;
}

Bytes made_images(const std::vector<size_t>& indices) {
  Bytes pixels;
  for (const size_t index : indices) {
    const auto image = make_image(6, 5, 1, index).pixels;
    pixels.insert(pixels.end(), image.begin(), image.end());
  }
  return pixels;
}

TEST(ImageStore, CopiesABatchInTheOrderAskedForWithAnyNumberOfThreads) {
  const TemporaryFolder folder;
  write_images(folder, 40);
  std::vector<size_t> indices{39, 3, 20, 20, 0, 3};  // some twice
  for (size_t i = 0; i < 40; ++i) indices.push_back((i * 7) % 40);
  for (const int64_t num_threads : {1, 2, 4}) {
    for (const int64_t num_cached : {0, 10, 40}) {
      auto options = grey(num_cached * kImageBytes);
      options.num_threads = num_threads;
      const ImageStore store(list_class_folder(folder.path() + "/tree"), options);
      ASSERT_EQ(store.num_cached(), static_cast<size_t>(num_cached));
      EXPECT_EQ(read_images(store, indices), made_images(indices)) << num_threads << ", " << num_cached;
      EXPECT_EQ(read_images(store, {}), Bytes());
    }
  }
}

TEST(ImageStore, NamesTheFirstBadFileInTheOrderAskedFor) {
  const TemporaryFolder folder;
  write_images(folder, 40);
  auto options = grey(2 * kImageBytes);
  options.num_threads = 4;
  const ImageStore store(list_class_folder(folder.path() + "/tree"), options);
  // The bad file asked for first is the last to be found bad.
  Bytes large = encode_png(make_image(2000, 2000, 1));
  large.resize(large.size() - 20);
  folder.write("tree/0/130.png", large);
  folder.write("tree/0/110.png", Bytes{});
  std::filesystem::remove(folder.path() + "/tree/0/120.png");
  const auto expect_named = [&](const std::vector<size_t>& indices, const std::string& name) {
    EXPECT_THAT([&] { read_images(store, indices); },
                Throws<DataError>(Property(&DataError::what, HasSubstr(name))));
  };
  for (int repetition = 0; repetition < 5; ++repetition) {
    expect_named({0, 5, 30, 10, 20, 7}, "130.png");
    expect_named({10, 30, 20}, "110.png");
    expect_named({1, 6, 20, 30, 10}, "120.png: cannot open");
  }
  EXPECT_EQ(read_images(store, {0, 5, 39}), made_images({0, 5, 39}));
}

TEST(ImageStore, ABadFileFailsOnlyTheCallsThatAskForIt) {
  constexpr size_t kThreads = 4;
  const TemporaryFolder folder;
  write_images(folder, 40);
  const ImageStore store(list_class_folder(folder.path() + "/tree"), grey(0));
  folder.write("tree/0/120.png", Bytes{});
  std::latch all_read(kThreads);
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      all_read.arrive_and_wait();
      for (size_t call = 0; call < 20; ++call) {
        const std::vector<size_t> indices{thread, 30 + call % 10, size_t{thread == 0 ? 20U : 21U}, 5};
        if (thread == 0) {
          EXPECT_THROW(read_images(store, indices), DataError);
        } else {
          EXPECT_EQ(read_images(store, indices), made_images(indices));
        }
      }
    });
  }
}

TEST(ImageStore, RefusesImagesThatDoNotAllFitWhereTheyMust) {
  const TemporaryFolder folder;
  write_images(folder, 5);
  const auto open = [&](int64_t channels, int64_t image_size, int64_t cache_bytes) {
    return ImageStore(
               list_class_folder(folder.path() + "/tree"),
               {.channels = channels, .image_size = image_size, .cache_bytes = cache_bytes, .must_fit = true})
        .num_cached();
  };
  const auto expect_refused = [&](int64_t channels, int64_t image_size, int64_t needed) {
    EXPECT_THAT([&] { open(channels, image_size, needed - 1); },
                Throws<std::invalid_argument>(
                    Property(&std::invalid_argument::what,
                             AllOf(HasSubstr("cache_bytes: expected " + std::to_string(needed) + " or more"),
                                   HasSubstr("all 5 images of " + folder.path()),
                                   HasSubstr("but got " + std::to_string(needed - 1))))));
    EXPECT_EQ(open(channels, image_size, needed), 5U);
  };
  expect_refused(1, 0, 5 * kImageBytes);
  expect_refused(3, 0, 5 * kImageBytes);  // cached in grey
  expect_refused(1, 4, 5 * 4 * 4);        // cached in the smaller size
  folder.write("tree/0/104.png", encode_png(make_image(7, 5, 1)));
  expect_refused(1, 8, 5 * 8 * 8);
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
  folder.write("tree/0/101.png", Bytes{});
  ImageStoreOptions options = grey(3 * kImageBytes);
  options.skip_bad = true;
  const ImageStore store(list_class_folder(folder.path() + "/tree"), options);
  ASSERT_EQ(store.folder().files.size(), 4U);
  ASSERT_EQ(store.num_cached(), 2U);
  std::filesystem::remove_all(folder.path() + "/tree");
  EXPECT_EQ(read_image(store, 0), make_image(6, 5, 1, 0).pixels);
  EXPECT_EQ(read_image(store, 1), make_image(6, 5, 1, 2).pixels);
  expect_error_of(store, 2, "0/103.png: cannot open");
}

TEST(ImageStore, NamesTheFirstBadFileWhereImagesAreUnlikeToo) {
  const TemporaryFolder folder;
  write_images(folder, 130);
  folder.write("tree/0/110.png", encode_png(make_image(7, 5, 1, 1)));
  for (const std::string damaged : {"120", "170"}) folder.write("tree/0/" + damaged + ".png", Bytes{1, 2, 3});
  auto options = grey(1 << 20);
  options.image_size = 6;
  // Threads working on blocks in parallel reach these files in a different order each time.
  for (int repetition = 0; repetition < 20; ++repetition) {
    EXPECT_THAT([&] { ImageStore(list_class_folder(folder.path() + "/tree"), options); },
                Throws<DataError>(Property(&DataError::what, HasSubstr("120.png"))));
  }
}

}  // namespace
}  // namespace lockstep
