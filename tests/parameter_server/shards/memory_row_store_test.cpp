#include "lockstep/parameter_server/shards/memory_row_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kRecordBytes = 24;
using StoredRecord = std::vector<std::byte>;

struct StoredRow {
  int64_t row;
  uint64_t update;
  StoredRecord record;
  bool operator==(const StoredRow&) const = default;
};

/// The same as a list, the row unused for longest first.
class ListedRows {
 public:
  explicit ListedRows(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}
  bool write(int64_t row, uint64_t update, const StoredRecord& record) {
    const bool is_new = std::erase_if(rows_, [&](const auto& each) { return each.row == row; }) == 0;
    if (is_new && rows_.size() == capacity_) {
      if (rows_.front().update == update) return false;
      rows_.erase(rows_.begin());
    }
    rows_.push_back({row, update, record});
    return true;
  }
  void evict_before(uint64_t update) {
    std::erase_if(rows_, [&](const auto& each) { return each.update < update; });
  }
  const std::vector<StoredRow>& rows() const { return rows_; }

 private:
  size_t capacity_;
  std::vector<StoredRow> rows_;
};

std::vector<StoredRow> rows_of(const MemoryRowStore& store) {
  std::vector<StoredRow> rows;
  store.for_each([&](int64_t row, uint64_t update, std::span<const std::byte> record) {
    rows.push_back({row, update, {record.begin(), record.end()}});
  });
  return rows;
}

class MemoryRowStoreTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(MemoryRowStoreTest, HoldsWhatAListHoldsAfterRandomUpdates) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t max_bytes = GetParam();
    MemoryRowStore store({.record_bytes = kRecordBytes, .max_bytes = max_bytes});
    ListedRows listed(store.capacity());
    const int64_t num_rows = trial % 2 == 0 ? 40 : 4000;
    for (uint64_t update = 1; update <= 60; ++update) {
      for (uint64_t i = random() % 50; i > 0; --i) {
        const auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(num_rows)) << (trial % 30);
        StoredRecord record(kRecordBytes);
        for (auto& byte : record) byte = static_cast<std::byte>(random());
        ASSERT_EQ(store.write(row, update, record), listed.write(row, update, record));
      }
      if (trial % 3 == 0 && update > 5) {
        const auto before = store.size();
        const auto evicted = store.evict_before(update - 5);
        listed.evict_before(update - 5);
        ASSERT_EQ(before - evicted, store.size());
      }
      ASSERT_EQ(store.size(), std::ssize(listed.rows()));
      ASSERT_EQ(rows_of(store), listed.rows());
      if (max_bytes > 0) {
        ASSERT_LE(store.bytes(), max_bytes);
      }
      for (const auto& each : listed.rows()) {
        StoredRecord read(kRecordBytes);
        ASSERT_TRUE(store.read(each.row, read));
        ASSERT_EQ(read, each.record);
      }
      StoredRecord none(kRecordBytes);
      ASSERT_FALSE(store.read((num_rows + 1) << (trial % 30), none));
    }
    store.clear();
    EXPECT_EQ(store.size(), 0);
    EXPECT_TRUE(rows_of(store).empty());
    EXPECT_TRUE(store.write(3, 1, StoredRecord(kRecordBytes)));
    EXPECT_EQ(store.size(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Limits, MemoryRowStoreTest, ::testing::Values(0, 700, 1200, 4000, 1 << 20));

TEST(MemoryRowStore, AlmostFillsItsLimitAndNeverExceedsIt) {
  for (const int64_t record_bytes : {4, 100, 768, 5000, 200'000}) {
    for (const int64_t max_bytes : {1 << 20, 3'333'333}) {
      MemoryRowStore store({.record_bytes = record_bytes, .max_bytes = max_bytes});
      const StoredRecord record(static_cast<size_t>(record_bytes));
      for (int64_t row = 0; row < store.capacity() + 10; ++row) {
        ASSERT_TRUE(store.write(row * 977, static_cast<uint64_t>(row) + 1, record));
        ASSERT_LE(store.bytes(), max_bytes);
      }
      EXPECT_EQ(store.size(), store.capacity());
      EXPECT_GT(store.bytes(),
                max_bytes - 2 * (record_bytes + 256) - (record_bytes > 100'000 ? 20 * 4096 : 0));
      EXPECT_GE(store.bytes(), store.size() * record_bytes);
    }
  }
}

TEST(MemoryRowStore, TheAllocatorGivesNoMoreThanTheStoreSays) {
  const auto allocated = [] {
    const auto info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const auto empty = allocated();
  const auto probe = std::make_unique<char[]>(1 << 20);
  if (allocated() - empty < 1 << 20) GTEST_SKIP() << "another allocator than glibc's";
  constexpr int64_t kLimit = int64_t{8} << 20;
  const StoredRecord record(192);
  const auto before = allocated();
  MemoryRowStore store({.record_bytes = 192, .max_bytes = kLimit});
  for (int64_t row = 0; row < 2 * store.capacity(); ++row)
    store.write(row, static_cast<uint64_t>(row), record);
  const auto taken = allocated() - before;
  EXPECT_LE(taken, kLimit);
  EXPECT_GT(taken, kLimit * 9 / 10);
}

TEST(MemoryRowStore, AllocatesNothingForRowsThatWereReserved) {
  const StoredRecord record(100);
  for (const int64_t max_bytes : {0, 200'000}) {
    MemoryRowStore store({.record_bytes = 100, .max_bytes = max_bytes});
    for (int64_t round = 0; round < 3; ++round) {
      store.reserve(700);
      const auto reserved = store.bytes();
      const auto before = store.size();
      for (int64_t row = 0; row < 700; ++row) {
        ASSERT_TRUE(store.write(round * 700 + row, static_cast<uint64_t>(round * 700 + row), record));
        ASSERT_EQ(store.bytes(), reserved);
      }
      EXPECT_EQ(store.size(), std::min(before + 700, store.capacity()));
    }
    if (max_bytes > 0) {
      EXPECT_EQ(store.size(), store.capacity());
      EXPECT_LE(store.bytes(), max_bytes);
      store.reserve(1'000'000);
      EXPECT_LE(store.bytes(), max_bytes);
    }
  }
}

TEST(MemoryRowStore, RefusesALimitThatHasNoRoomForARow) {
  const auto made = [](const MemoryRowStoreOptions& options) {
    return [options] { MemoryRowStore{options}; };
  };
  EXPECT_THAT(made({.record_bytes = 1000, .max_bytes = 1000}),
              ThrowsMessage<InvalidArgument>(HasSubstr("for a single row, but got a limit of 1000")));
  EXPECT_THAT(made({.record_bytes = 0}), ThrowsMessage<InvalidArgument>(HasSubstr("but got 0")));
}

}  // namespace
}  // namespace lockstep
