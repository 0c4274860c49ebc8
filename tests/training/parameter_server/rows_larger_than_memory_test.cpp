#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parameter_server/service/parameter_service.h"
#include "lockstep/parameter_server/shards/disk_row_store.h"
#include "lockstep/parameter_server/shards/row_disk.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/parameter_server/internal/server_checkpoint.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

constexpr int kLargeBits = 40;
constexpr int64_t kLargeColumns = 128;
constexpr int64_t kLargeMemory = kLeastDiskRowMemory;
// A row has its values and Adagrad's sums of squares; in memory, it takes 36 bytes more.
constexpr int64_t kLargeRows = 10 * kLargeMemory / (2 * 4 * kLargeColumns + 36) + 1;
constexpr int64_t kLargeBatch = 4000;
// For what is not of the table: batches, buffers of files, and what the allocator keeps, which varies. A
// table that is read whole takes four times as much.
constexpr int64_t kMemoryBeside = int64_t{32} << 20;

int64_t bytes_in_status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == name + ":") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return -1;
}

/// The most resident memory of this process, with mapped files, beyond what it has now.
class PeakMemory {
 public:
  PeakMemory() {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
    first_ = bytes_in_status("VmRSS");
    is_known_ = first_ > 0 && bytes_in_status("VmHWM") - first_ < int64_t{1} << 20;
  }
  bool is_known() const { return is_known_; }
  int64_t bytes() const { return bytes_in_status("VmHWM") - first_; }

 private:
  int64_t first_ = 0;
  bool is_known_ = false;
};

/// Whether memory that is freed goes back to the system, so that a peak tells what was allocated.
bool allocator_is_known() {
  const auto in_use = [] {
    const auto info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const auto before = in_use();
  const auto probe = std::make_unique<char[]>(1 << 20);
  return in_use() - before >= 1 << 20;
}

/// Row numbers of the table, ascending within a batch.
torch::Tensor batch_of_rows(int64_t first) {
  const int64_t end = std::min(first + kLargeBatch, kLargeRows);
  auto rows = torch::arange(first, end);
  auto* row = rows.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i) row[i] = scattered_row(row[i], kLargeBits);
  return std::get<0>(rows.sort());
}

torch::Tensor within(const torch::Tensor& rows, const RowRange& range) {
  return rows.index_select(0, (rows >= range.begin).logical_and(rows < range.end).nonzero().squeeze(1)) -
         range.begin;
}

FilteredRows large_rows(const RowRange& range) {
  return {{}, UniformValues{.low = -1, .high = 1, .seed = 3}, range};
}

class RowsLargerThanMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_disk_row_store()) GTEST_SKIP() << "built without RocksDB";
    if (!allocator_is_known()) GTEST_SKIP() << "another allocator than glibc's";
    if (!PeakMemory().is_known()) GTEST_SKIP() << "the system does not tell peaks of memory anew";
  }

  /// Saves the shards of servers as a chief does.
  void save(const std::vector<std::vector<HeldShard>>& servers, const std::shared_ptr<RowDisk>& disk) {
    CheckpointStore store({.folder = backup()});
    const std::string begun = store.begin();
    CheckpointManifest manifest{.step = ++num_saved_, .version = "1.2.3"};
    for (size_t i = 0; i < servers.size(); ++i) {
      // A folder without checkpoints, as the server would read the newest one.
      const std::string empty = folder_.path() + "/empty";
      fs::create_directories(empty);
      ServerCheckpoint server({.folder = empty,
                               .server = static_cast<int>(i),
                               .num_servers = static_cast<int>(servers.size()),
                               .on_message = {},
                               .disk = disk});
      const auto name = fs::path(begun).filename().string();
      fs::create_directory_symlink(fs::absolute(begun), empty + "/" + name);
      const auto text = server.save(name, servers[i]);
      fs::remove(empty + "/" + name);
      for (const auto& file : parse_manifest(text, "server").files) manifest.files.push_back(file);
    }
    store.commit(begun, manifest);
  }

  std::string backup() const { return folder_.path() + "/backup"; }
  std::shared_ptr<RowDisk> disk(const std::string& name) const {
    return std::make_shared<RowDisk>(folder_.path() + "/" + name);
  }

 private:
  const TemporaryFolder folder_;
  int64_t num_saved_ = 0;
};

std::shared_ptr<ParameterShard> make_large(const std::string& name, const RowRange& range,
                                           const std::shared_ptr<RowDisk>& disk) {
  return std::make_shared<ParameterShard>(name, torch::empty({0, kLargeColumns}), AdagradRule{},
                                          large_rows(range), RowGrowth{kLargeMemory, kLargeBits}, disk);
}

/// Expects that both have the same values in the rows of a range of the table.
void expect_same_rows(const ParameterShard& whole, const ParameterShard& part, const RowRange& range) {
  for (int64_t first = 0; first < kLargeRows; first += kLargeBatch) {
    const auto rows = within(batch_of_rows(first), range);
    ASSERT_TRUE(whole.pull_rows(rows + range.begin).values.equal(part.pull_rows(rows).values)) << first;
  }
}

TEST_F(RowsLargerThanMemoryTest, AreSavedAndReadInPiecesByAnyNumberOfServers) {
  const RowRange all{0, int64_t{1} << kLargeBits};
  const auto first_disk = disk("first");
  const auto trained = make_large("t", all, first_disk);
  torch::manual_seed(1);
  for (int64_t first = 0; first < kLargeRows; first += kLargeBatch) {
    const auto rows = batch_of_rows(first);
    trained->push_rows(rows, torch::randn({rows.numel(), kLargeColumns}),
                       {.id = {static_cast<uint64_t>(first), 0}, .lr = 0.1});
  }
  ASSERT_EQ(trained->extent().rows, kLargeRows);
  ASSERT_GE(kLargeRows * (2 * 4 * kLargeColumns + 36), 10 * kLargeMemory);
  ASSERT_LE(trained->extent().most_bytes, kLargeMemory);
  {
    const PeakMemory peak;
    save({{{"t", all, trained}}}, first_disk);
    EXPECT_LT(peak.bytes(), kMemoryBeside);
  }
  {
    const auto own_disk = disk("own");
    const PeakMemory peak;
    ServerCheckpoint server(
        {.folder = backup(), .server = 0, .num_servers = 1, .on_message = {}, .disk = own_disk});
    const auto own = server.take_own();
    EXPECT_LT(peak.bytes(), kLargeMemory + kMemoryBeside);
    ASSERT_EQ(own.size(), 1U);
    EXPECT_EQ(own[0].shard->extent().rows, kLargeRows);
    expect_same_rows(*trained, *own[0].shard, all);
  }
  const auto halves = cut_rows(all.end, 2);
  const auto half_disk = disk("halves");
  std::vector<std::vector<HeldShard>> servers;
  int64_t num_rows = 0;
  for (int i = 0; i < 2; ++i) {
    const auto& range = halves[static_cast<size_t>(i)];
    const PeakMemory peak;
    ServerCheckpoint server({.folder = backup(), .server = i, .num_servers = 2});
    const auto found = server.find_growing("t", large_rows(range), RowGrowth{kLargeMemory, kLargeBits});
    ASSERT_TRUE(found);
    const auto half = make_large("t/part_" + std::to_string(i), range, half_disk);
    half->restore(*found);
    EXPECT_LT(peak.bytes(), kLargeMemory + kMemoryBeside);
    num_rows += half->extent().rows;
    expect_same_rows(*trained, *half, range);
    servers.push_back({{"t", range, half}});
  }
  EXPECT_EQ(num_rows, kLargeRows);
  save(servers, half_disk);
  const PeakMemory peak;
  ServerCheckpoint server({.folder = backup(), .server = 0, .num_servers = 1});
  const auto found = server.find_growing("t", large_rows(all), RowGrowth{kLargeMemory, kLargeBits});
  ASSERT_TRUE(found);
  const auto united = make_large("t", all, half_disk);
  united->restore(*found);
  EXPECT_LT(peak.bytes(), kLargeMemory + kMemoryBeside);
  EXPECT_EQ(united->extent().rows, kLargeRows);
  expect_same_rows(*trained, *united, all);
}

}  // namespace
}  // namespace lockstep
