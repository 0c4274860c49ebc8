// ImageFolder with its images in the memory of GPUs.
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/pinned_memory.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

constexpr int64_t kImages = 13;
constexpr int64_t kImageBytes = 6 * 5;

torch::Device gpu(int index) {
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

/// Grey images in two classes.
class ImageFiles {
 public:
  explicit ImageFiles(int64_t height = 6, int64_t width = 5) {
    for (int i = 0; i < kImages; ++i) {
      files_.write("root/" + std::to_string(i % 2) + "/" + std::to_string(100 + i) + ".png",
                   testing::encode_png(testing::make_image(height, width, 1, static_cast<uint64_t>(i))));
    }
  }

  ImageFolder open(ImageCache cache) const {
    return ImageFolder(
        files_.file("root"),
        {.image_size = 8, .mean = {0.1, 0.2, 0.3}, .stddev = {0.5}, .cache = cache, .num_threads = 1});
  }

 private:
  const testing::TemporaryFolder files_;
};

/// Makes a batch of all images on a GPU's current stream, in this order of the images.
Example batch_on(const ImageFolder& images, torch::Device device, size_t first = 0) {
  std::vector<size_t> indices(kImages);
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::rotate(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(first), indices.end());
  Example batch = images.get_batch(indices);
  batch.data = pinned_for(batch.data, device).to(device, /*non_blocking=*/true);
  batch.target = pinned_for(batch.target, device).to(device, /*non_blocking=*/true);
  return images.device_transform(batch);
}

struct Placement {
  std::string name;
  std::vector<std::string> devices;
  int replicas_per_device = 1;
};

class ImageFolderPlacement : public ::testing::TestWithParam<Placement> {};

INSTANTIATE_TEST_SUITE_P(Placements, ImageFolderPlacement,
                         ::testing::Values(Placement{"TwoCpus", {"cpu:0", "cpu:1"}},
                                           Placement{"ThreeOnOneGpu", {"gpu:0"}, 3},
                                           Placement{"TwoGpus", {"gpu:0", "gpu:1"}},
                                           Placement{"GpuAndCpu", {"gpu:0", "cpu:0"}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(ImageFolderPlacement, ShardsAreThoseOfTheHostsCache) {
  const Placement& placement = GetParam();
  LOCKSTEP_NEEDS_GPUS(placement.name == "TwoGpus" ? 2 : placement.name == "TwoCpus" ? 0 : 1);
  forget_races();
  const ImageFiles files;
  MirroredStrategy strategy(placement.devices, {.replicas_per_device = placement.replicas_per_device});
  for (const int prefetch : {0, 3}) {
    const auto shards_of = [&](ImageCache cache) {
      auto batches =
          strategy
              .distribute_dataset(
                  files.open(cache),
                  {.global_batch_size = 4, .shuffle_seed = 3, .prefetch = prefetch, .num_workers = 2})
              .map([](const Example& shard) { return Example(shard.data * 2, shard.target); });
      std::vector<Example> shards;
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (const auto& batch : batches) {
          for (const auto& shard : batch.local_values())
            shards.emplace_back(shard.data.cpu(), shard.target.cpu());
        }
      }
      return shards;
    };
    const auto expected = shards_of(ImageCache::kHost);
    const auto shards = shards_of(ImageCache::kDevice);
    ASSERT_EQ(shards.size(), expected.size());
    size_t num_empty = 0;
    for (size_t i = 0; i < shards.size(); ++i) {
      EXPECT_TRUE(shards[i].data.equal(expected[i].data)) << i;  // and of equal shapes
      EXPECT_TRUE(shards[i].target.equal(expected[i].target)) << i;
      if (shards[i].target.size(0) > 0) continue;
      ++num_empty;
      EXPECT_EQ(shards[i].data.sizes(), (std::vector<int64_t>{0, 3, 8, 8}));
    }
    EXPECT_GT(num_empty, 0U) << "the last batch has one image";
  }
  expect_no_races();
}

TEST(ImageFolderGpu, ThreadsWithStreamsOfTheirOwnShareACopyOnEachGpu) {
  LOCKSTEP_NEEDS_GPUS(2);
  constexpr int kThreads = 6;
  constexpr int kBatches = 5;
  // Large enough that all threads ask for the copy before it is made.
  constexpr int64_t kSide = 500;
  const ImageFiles files(kSide, kSide);
  std::vector<torch::Tensor> expected;
  for (int i = 0; i < kThreads; ++i)
    expected.push_back(
        batch_on(files.open(ImageCache::kHost), gpu(i % 2), static_cast<size_t>(i)).data.cpu());
  forget_races();
  {
    const ImageFolder images = files.open(ImageCache::kDevice);
    std::latch all_begin(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i, own = images] {
        const c10::StreamGuard on_own_stream(stream_from_pool(gpu(i % 2)));
        all_begin.arrive_and_wait();
        for (int batch = 0; batch < kBatches; ++batch) {
          const auto result = batch_on(own, gpu(i % 2), static_cast<size_t>(i)).data;
          EXPECT_TRUE(result.cpu().equal(expected[static_cast<size_t>(i)])) << i;
        }
      });
    }
  }
  expect_no_races();
#ifndef LOCKSTEP_WITH_CUDA
  constexpr int64_t kIndexAndTarget = 16;
  EXPECT_EQ(fake_gpu::driver_calls().bytes_from_host,
            2 * kImages * kSide * kSide + kThreads * kBatches * kImages * kIndexAndTarget);
#endif
}

TEST(ImageFolderGpu, TheHostWaitsForTheFirstBatchOnAGpuOnly) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const ImageFiles files;
  MirroredStrategy strategy({"gpu:0"});
  auto batches =
      strategy.distribute_dataset(files.open(ImageCache::kDevice), {.global_batch_size = 4, .prefetch = 0})
          .repeat();
  auto batch = batches.begin();
  {
    const HostMustNotWait guard;
    for (int i = 0; i < 10; ++i) ++batch;
  }
  expect_no_races();
}

TEST(ImageFolderGpu, MemoryOfTheImagesIsNotReusedWhileAnotherStreamReadsThem) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const ImageFiles files;
  const c10::Stream maker = stream_from_pool(gpu(0));
  const c10::Stream reader = stream_from_pool(gpu(0));
  const auto expected = batch_on(files.open(ImageCache::kHost), gpu(0)).data.cpu();
  torch::Tensor result;
  {
    const ImageFolder images = files.open(ImageCache::kDevice);
    {
      const c10::StreamGuard guard(maker);
      batch_on(images, gpu(0));
    }
    const c10::StreamGuard guard(reader);
    result = batch_on(images, gpu(0)).data;
  }
  {
    const c10::StreamGuard guard(maker);
    torch::zeros({kImages, kImageBytes}, torch::TensorOptions(torch::kByte).device(gpu(0)));
  }
  const c10::StreamGuard guard(reader);
  EXPECT_TRUE(result.cpu().equal(expected));
  expect_no_races();
}

#ifndef LOCKSTEP_WITH_CUDA

/// Returns what a batch of four images asks the driver for, once the images are on the GPU.
fake_gpu::DriverCalls calls_of_a_batch(ImageCache cache) {
  const ImageFiles files;
  MirroredStrategy strategy({"gpu:0"});
  auto batches = strategy.distribute_dataset(files.open(cache), {.global_batch_size = 4, .prefetch = 0});
  auto batch = batches.begin();
  ++batch;
  fake_gpu::forget();
  ++batch;
  return fake_gpu::driver_calls();
}

TEST(ImageFolderGpu, ABatchCopiesIndicesInsteadOfImages) {
  constexpr int64_t kTargetBytes = 4 * 8;
  const auto from_host = calls_of_a_batch(ImageCache::kHost);
  const auto from_device = calls_of_a_batch(ImageCache::kDevice);
  EXPECT_EQ(from_host.bytes_from_host, 4 * kImageBytes + kTargetBytes);
  EXPECT_EQ(from_device.bytes_from_host, 4 * 8 + kTargetBytes);
  EXPECT_EQ(from_device.copies, from_host.copies);
  EXPECT_EQ(from_device.event_waits, from_host.event_waits);
  EXPECT_EQ(from_device.streams_recorded, 0);
}

TEST(ImageFolderGpu, TriesAgainAfterAGpuHadTooLittleMemory) {
  const ImageFiles files;
  const ImageFolder images = files.open(ImageCache::kDevice);
  Example batch = images.get_batch({3});
  batch.data = batch.data.to(gpu(0));
  fake_gpu::limit_memory(0, 0);
  EXPECT_THROW(images.device_transform(batch), c10::OutOfMemoryError);
  fake_gpu::limit_memory(0, -1);
  const ImageFolder host = files.open(ImageCache::kHost);
  const auto expected = host.device_transform(host.get_batch({3})).data;
  EXPECT_TRUE(images.device_transform(batch).data.cpu().equal(expected));
}

#endif

}  // namespace
}  // namespace lockstep
