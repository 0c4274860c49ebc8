#include "lockstep/parameter_server/shards/disk_row_store.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <tuple>
#include <vector>

#include "lockstep/parameter_server/shards/memory_row_store.h"
#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/shards/row_disk.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

constexpr int64_t kDiskMemory = int64_t{16} << 20;

using DiskRecord = std::vector<std::byte>;
using DiskRowTuple = std::tuple<uint64_t, int64_t, DiskRecord>;

DiskRecord random_record(std::mt19937_64& random, int64_t bytes) {
  DiskRecord record(static_cast<size_t>(bytes));
  for (size_t i = 0; i + 8 <= record.size(); i += 8) {
    const uint64_t bits = random();
    std::memcpy(record.data() + i, &bits, 8);
  }
  return record;
}

/// All rows, in the order of their last update and their number. Checks that updates ascend.
std::vector<DiskRowTuple> all_rows(const RowStore& store) {
  std::vector<DiskRowTuple> rows;
  uint64_t last = 0;
  store.for_each([&](int64_t row, uint64_t update, std::span<const std::byte> record) {
    EXPECT_GE(update, last);
    last = update;
    rows.emplace_back(update, row, DiskRecord(record.begin(), record.end()));
  });
  std::sort(rows.begin(), rows.end());
  return rows;
}

bool are_equal(const RowStore& one, const RowStore& other) {
  return one.size() == other.size() && all_rows(one) == all_rows(other);
}

int64_t allocated_bytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

class DiskRowStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_disk_row_store()) GTEST_SKIP() << "built without RocksDB";
  }
  const TemporaryFolder folder_;
};

TEST_F(DiskRowStoreTest, HoldsWhatMemoryHoldsAfterRandomUpdates) {
  RowDisk disk(folder_.path());
  constexpr int64_t kBytes = 40'000;  // some 200 of them fit into memory
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 4; ++trial) {
    const auto store = disk.make_store(kBytes, kDiskMemory);
    MemoryRowStore expected({.record_bytes = kBytes});
    for (uint64_t update = 1; update <= 60; ++update) {
      std::vector<int64_t> rows;
      for (int64_t i = 0; i < 40; ++i) {
        const auto most = 1 + random() % 900;  // small ones are frequent
        rows.push_back(static_cast<int64_t>(random() % most) << (trial * 10));
      }
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
      if (random() % 4 != 0) store->expect(rows);
      for (const int64_t row : rows) {
        DiskRecord read(kBytes), known(kBytes);
        ASSERT_EQ(store->read(row, read), expected.read(row, known));
        ASSERT_EQ(read, known);
      }
      std::shuffle(rows.begin(), rows.end(), random);
      for (const int64_t row : rows) {
        if (random() % 5 == 0) continue;
        const auto record = random_record(random, kBytes);
        ASSERT_TRUE(store->write(row, update, record));
        expected.write(row, update, record);
        DiskRecord read(8);
        const int64_t other = rows[random() % rows.size()];
        DiskRecord known(8);
        ASSERT_EQ(store->read(other, read), expected.read(other, known));
        ASSERT_EQ(read, known);
      }
      if (trial % 2 == 1 && update > 20) {
        ASSERT_EQ(store->evict_before(update - 20), expected.evict_before(update - 20));
      }
      ASSERT_EQ(store->size(), expected.size());
      ASSERT_LE(store->bytes(), kDiskMemory);
      if (update % 15 == 0) {
        ASSERT_TRUE(are_equal(*store, expected));
      }
    }
    EXPECT_GT(store->size(), 250);
    store->clear();
    EXPECT_EQ(store->size(), 0);
    EXPECT_TRUE(all_rows(*store).empty());
    DiskRecord none(kBytes);
    EXPECT_FALSE(store->read(0, none));
    const auto record = random_record(random, kBytes);
    EXPECT_TRUE(store->write(3, 1, record));
    EXPECT_TRUE(store->read(3, none));
    EXPECT_EQ(none, record);
  }
}

TEST_F(DiskRowStoreTest, HoldsTenTimesAsManyRowsAsMemoryWithinItsLimit) {
  constexpr int64_t kBytes = 512;
  const auto probe_before = allocated_bytes();
  const auto probe = std::make_unique<char[]>(1 << 20);
  if (allocated_bytes() - probe_before < 1 << 20) GTEST_SKIP() << "another allocator than glibc's";
  RowDisk disk(folder_.path());
  MemoryRowStore in_memory({.record_bytes = kBytes, .max_bytes = kDiskMemory});
  const int64_t num_rows = 10 * in_memory.capacity();
  const auto before = allocated_bytes();
  const auto store = disk.make_store(kBytes, kDiskMemory);
  int64_t most = 0;
  std::mt19937_64 random(6);
  DiskRecord record(kBytes);
  const auto fill = [&](int64_t row, uint64_t update) {
    for (size_t i = 0; i < kBytes; i += 8) {
      const uint64_t bits = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15ULL + update * 31 + i;
      std::memcpy(record.data() + i, &bits, 8);
    }
  };
  std::vector<uint64_t> updates(static_cast<size_t>(num_rows));
  constexpr int64_t kStep = 4096;
  uint64_t update = 0;
  for (int64_t round = 0; round < 2; ++round) {
    for (int64_t first = 0; first < num_rows; first += kStep) {
      ++update;
      std::vector<int64_t> rows;
      for (int64_t i = 0; i < kStep; ++i)
        rows.push_back(i % 4 == 0 ? static_cast<int64_t>(random() % 2000)
                                  : first + static_cast<int64_t>(random() % kStep));
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
      std::erase_if(rows, [&](int64_t row) { return row >= num_rows; });
      store->expect(rows);
      DiskRecord read(kBytes);
      for (const int64_t row : rows) {
        const uint64_t last = updates[static_cast<size_t>(row)];
        ASSERT_EQ(store->read(row, read), last > 0);
        fill(row, last);
        if (last > 0) {
          ASSERT_EQ(read, record);
        }
      }
      for (const int64_t row : rows) {
        fill(row, update);
        ASSERT_TRUE(store->write(row, update, record));
        updates[static_cast<size_t>(row)] = update;
      }
      most = std::max(most, allocated_bytes() - before - static_cast<int64_t>(updates.size() * 8));
    }
  }
  int64_t visited = 0;
  store->for_each([&](int64_t row, uint64_t last, std::span<const std::byte> bytes) {
    ASSERT_EQ(last, updates[static_cast<size_t>(row)]);
    fill(row, last);
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), record.begin()));
    ++visited;
    if (visited % 1000 == 0)
      most = std::max(most, allocated_bytes() - before - static_cast<int64_t>(updates.size() * 8));
  });
  EXPECT_EQ(visited, store->size());
  EXPECT_EQ(visited, num_rows - std::count(updates.begin(), updates.end(), 0));
  EXPECT_GT(visited, 6 * in_memory.capacity());
  EXPECT_LE(most, kDiskMemory);
  EXPECT_LE(store->bytes(), kDiskMemory);
  EXPECT_GT(most, kDiskMemory / 2);
}

TEST_F(DiskRowStoreTest, TrainsAndSavesTheSameBitsAsATableInMemory) {
  const auto disk = std::make_shared<RowDisk>(folder_.path());
  constexpr int64_t kColumns = 5000;
  constexpr int kBits = 20;
  const auto like = at::empty({0, kColumns}, at::kFloat);
  const InitialValues initial = NormalValues{.std = 0.5, .seed = 3};
  for (const auto& rule :
       {UpdateRule(AdagradRule{.initial_accumulator_value = 0.1}), UpdateRule(AdamRule{})}) {
    for (const RowFilter& filter : {RowFilter{}, RowFilter{.steps_to_live = 12}}) {
      const FilteredRows filtered{filter, initial, {0, int64_t{1} << kBits}};
      ParameterShard in_memory("t", like, rule, filtered, RowGrowth{0, kBits});
      const auto make = [&] {
        return std::make_unique<ParameterShard>("t", like, rule, filtered, RowGrowth{kDiskMemory, kBits},
                                                disk);
      };
      auto on_disk = make();
      std::mt19937_64 random(8);
      at::manual_seed(8);
      for (uint64_t closure = 0; closure < 30; ++closure) {
        std::vector<int64_t> numbers;
        for (int64_t i = 0; i < 30; ++i)
          numbers.push_back(scattered_row(static_cast<int64_t>(random() % (1 + random() % 600)), kBits));
        const auto unsorted = at::tensor(numbers, at::kLong);
        ASSERT_TRUE(on_disk->pull_rows(unsorted).values.equal(in_memory.pull_rows(unsorted).values));
        const auto rows = std::get<0>(at::_unique(unsorted));
        const auto gradients = at::randn({rows.numel(), kColumns}, at::kFloat);
        const PushedStep step{.id = {closure, 0}, .lr = 0.1};
        on_disk->push_rows(rows, gradients, step);
        in_memory.push_rows(rows, gradients, step);
        ASSERT_EQ(on_disk->extent().rows, in_memory.extent().rows);
        if (closure == 20) {
          const auto saved = on_disk->save();
          on_disk = make();
          on_disk->restore(saved);
        }
      }
      const auto one = in_memory.save(), other = on_disk->save();
      ASSERT_EQ(one.optimizer.size(), other.optimizer.size());
      const auto part = [](const ParameterShard::Saved& saved, const std::string& name) {
        for (const auto& [own, tensor] : saved.optimizer)
          if (own == name) return tensor;
        return at::Tensor();
      };
      const auto order = part(one, "rows").argsort(), other_order = part(other, "rows").argsort();
      EXPECT_TRUE(one.values.index_select(0, order).equal(other.values.index_select(0, other_order)));
      for (const auto& [name, tensor] : one.optimizer) {
        if (tensor.dim() == 0) {
          EXPECT_TRUE(tensor.equal(part(other, name))) << name;
          continue;
        }
        EXPECT_TRUE(tensor.index_select(0, order).equal(part(other, name).index_select(0, other_order)))
            << name;
      }
    }
  }
}

TEST_F(DiskRowStoreTest, AFolderHasOneServerAndNothingOfAnEarlierOne) {
  const auto path = folder_.path() + "/rows";
  fs::create_directories(path + "/lockstep-rows-7");
  std::ofstream(path + "/mine") << "kept";
  RowDisk disk(path);
  EXPECT_FALSE(fs::exists(path + "/lockstep-rows-7"));
  EXPECT_TRUE(fs::exists(path + "/mine"));
  EXPECT_THAT([&] { RowDisk{path}; },
              ThrowsMessage<FolderInUse>(AllOf(HasSubstr(path), HasSubstr("for the rows of one server"))));
  disk.make_store(8, kDiskMemory);
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 2);  // "mine" and the lock
}

TEST_F(DiskRowStoreTest, AnErrorOfTheDiskNamesTheFolderAndLasts) {
  RowDisk disk(folder_.path());
  const auto store = disk.make_store(4096, kDiskMemory);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const auto write = [&] {
    const DiskRecord record(4096);
    for (int64_t row = 0; row < 20'000; ++row) store->write(row, 1, record);
    DiskRecord read(4096);
    for (int64_t row = 0; row < 20'000; ++row) store->read(row, read);
  };
  {
    const FileSizeLimit limit(100'000);
    EXPECT_THAT(write, ThrowsMessage<std::system_error>(HasSubstr(folder_.path())));
    EXPECT_THAT([&] { disk.map_bytes(200'000); },
                ThrowsMessage<std::system_error>(HasSubstr(folder_.path())));
  }
  std::signal(SIGXFSZ, old);
  EXPECT_THAT(write, ThrowsMessage<std::system_error>(HasSubstr(folder_.path())));
}

TEST_F(DiskRowStoreTest, RefusesTooLittleMemory) {
  RowDisk disk(folder_.path());
  EXPECT_THAT([&] { disk.make_store(8, 1 << 20); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got 1048576")));
  EXPECT_THAT([&] { disk.make_store(0, kDiskMemory); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got 0")));
}

TEST(RowDisk, SaysWhatToInstallWithoutRocksdb) {
  if (has_disk_row_store()) GTEST_SKIP() << "built with RocksDB";
  EXPECT_THAT([] { RowDisk{"rows"}; },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("'rows'"), HasSubstr("install Debian's librocksdb-dev"))));
}

}  // namespace
}  // namespace lockstep
