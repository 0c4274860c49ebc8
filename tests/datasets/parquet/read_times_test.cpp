#include "lockstep/datasets/stores/read_times.h"

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/datasets/parquet/parquet_writer.h"
#include "lockstep/datasets/stores/internal/watched_file.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

constexpr int64_t kTimedRows = 3000;

/// Writes numbers that no compression makes smaller.
std::string write_random(const TemporaryFolder& folder) {
  const std::string path = folder.file("random.parquet");
  ParquetWriter writer(
      {.path = path, .columns = {{.name = "number", .type = at::kLong}}, .rows_per_group = kTimedRows / 3});
  at::manual_seed(1);
  writer.append({{.values = at::randint(std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<int64_t>::max(), {kTimedRows}, at::kLong),
                  .offsets = {}}});
  writer.close();
  return path;
}

TEST(ReadTimesOfDatasets, CountWhatIsReadAndDecoded) {
  const TemporaryFolder folder;
  const ParquetDataset dataset({.paths = {write_random(folder)}});
  const ReadTimes& times = dataset.read_times();
  EXPECT_EQ(times.decoded_rows(), 0);
  EXPECT_EQ(times.seconds(ReadPart::kWait), 0);
  const double before = times.seconds(ReadPart::kStore) + times.seconds(ReadPart::kDecode);
  EXPECT_GT(before, 0);  // the metadata
  std::vector<size_t> all(kTimedRows);
  std::iota(all.begin(), all.end(), size_t{0});
  dataset.get_batch(all);
  EXPECT_EQ(times.decoded_rows(), kTimedRows);
  EXPECT_EQ(times.decoded_bytes(), 8 * kTimedRows);
  // Nothing was decoded ahead, so the caller did all of it.
  const double after = times.seconds(ReadPart::kStore) + times.seconds(ReadPart::kDecode);
  EXPECT_GT(after, before);
  EXPECT_GE(times.seconds(ReadPart::kWait), after - before);
  EXPECT_GE(times.store_bytes(), 8 * kTimedRows);
  // Decoded row groups are not read again.
  const int64_t bytes = times.store_bytes();
  dataset.get_batch(all);
  EXPECT_EQ(times.decoded_rows(), kTimedRows);
  EXPECT_EQ(times.store_bytes(), bytes);
}

constexpr std::chrono::milliseconds kSlow{30};

/// Takes as long for each read, and returns half of what was asked for.
class SlowFile : public arrow::io::RandomAccessFile {
 public:
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<int64_t> GetSize() override { return 1000; }
  arrow::Result<int64_t> Tell() const override { return 0; }
  arrow::Status Seek(int64_t) override { return arrow::Status::OK(); }
  arrow::Result<int64_t> Read(int64_t size, void*) override { return ReadAt(0, size, nullptr); }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t) override {
    return arrow::Status::IOError("no");
  }
  arrow::Result<int64_t> ReadAt(int64_t, int64_t size, void*) override {
    std::this_thread::sleep_for(kSlow);
    return size / 2;
  }
};

TEST(WatchedFiles, AddTheirTimeToTheStoresAndTakeItFromDecoding) {
  const auto times = std::make_shared<ReadTimes>();
  {
    const auto file = std::make_shared<WatchedFile>(std::make_shared<SlowFile>(), 1000, times);
    EXPECT_EQ(file->ReadAt(0, 100, nullptr).ValueOrDie(), 50);
    EXPECT_EQ(file->Read(20, nullptr).ValueOrDie(), 10);
    EXPECT_FALSE(file->Read(20).ok());
  }
  EXPECT_EQ(times->store_bytes(), 60);
  EXPECT_GE(times->seconds(ReadPart::kStore), 2 * std::chrono::duration<double>(kSlow).count());
  EXPECT_EQ(times->seconds(ReadPart::kDecode), -times->seconds(ReadPart::kStore));
}

TEST(WatchedFiles, CountReadsAtTheSameTimeOnce) {
  const auto times = std::make_shared<ReadTimes>();
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto file = std::make_shared<WatchedFile>(std::make_shared<SlowFile>(), 1000, times);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_TRUE(file->ReadAt(0, 2, nullptr).ok()); });
    for (auto& thread : threads) thread.join();
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(times->store_bytes(), 8);
  EXPECT_LE(times->seconds(ReadPart::kStore), passed.count());
}

TEST(WatchedFiles, RememberReadsThatFailed) {
  constexpr int64_t kSize = 50;  // of which SlowFile returns half of what is asked for
  const auto has_failed = [&](const auto& read) {
    const auto file = std::make_shared<WatchedFile>(std::make_shared<SlowFile>(), kSize, nullptr);
    read(*file);
    return file->has_failed();
  };
  EXPECT_FALSE(has_failed([](WatchedFile&) {}));
  EXPECT_FALSE(has_failed([](WatchedFile& file) { EXPECT_EQ(file.Read(20, nullptr).ValueOrDie(), 10); }));
  EXPECT_TRUE(has_failed([](WatchedFile& file) { EXPECT_FALSE(file.Read(20).ok()); }));
  // Fewer bytes than there are, which is no failure at the end.
  EXPECT_TRUE(has_failed([](WatchedFile& file) { EXPECT_TRUE(file.ReadAt(0, 2, nullptr).ok()); }));
  EXPECT_FALSE(has_failed([](WatchedFile& file) { EXPECT_TRUE(file.ReadAt(49, 2, nullptr).ok()); }));
  EXPECT_FALSE(has_failed([](WatchedFile& file) { EXPECT_TRUE(file.ReadAt(60, 2, nullptr).ok()); }));
}

}  // namespace
}  // namespace lockstep
