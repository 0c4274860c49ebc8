#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/disk_row_store.h"
#include "lockstep/parameter_server/shards/memory_row_store.h"
#include "lockstep/parameter_server/shards/rocksdb_rows.h"
#include "lockstep/parameter_server/shards/row_count_sketch.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Shares of the limit; frequent rows have the rest.
struct MemoryShares {
  explicit MemoryShares(int64_t max_bytes) {
    const int64_t left = max_bytes - RocksdbRows::kOwnBytes;
    rocksdb = left / 4;
    counts = left / 32;
    staged = left / 32;
    frequent = left - rocksdb - counts - staged;
  }
  int64_t rocksdb, counts, staged, frequent;
};

/// Counts are halved after this many writes for each row that fits into memory, as in TinyLFU.
constexpr int64_t kWritesPerPlace = 8;

/// A row is in memory or in RocksDB, never in both. A row that is written takes the place in memory of the
/// row unused for longest if it has been written more often than that one, by a sketch whose counts are
/// halved from time to time: TinyLFU (Einziger, Friedman and Manes, 2017).
class RocksdbRowStore : public RowStore {
 public:
  explicit RocksdbRowStore(const DiskRowStoreOptions& options)
      : options_(options),
        shares_(options.max_bytes),
        frequent_({.record_bytes = options.record_bytes, .max_bytes = shares_.frequent}),
        counts_(shares_.counts),
        most_staged_(std::max<int64_t>(1, shares_.staged / options.record_bytes)) {
    open();
  }

  void expect(std::span<const int64_t> rows) const override {
    expected_.assign(rows.begin(), rows.end());
    updates_.assign(rows.size(), std::nullopt);
    num_found_ = first_staged_ = end_staged_ = 0;
  }
  void reserve(int64_t num_new_rows) override {
    frequent_.reserve(std::min(num_new_rows, frequent_.capacity() - frequent_.size()));
  }
  bool read(int64_t row, std::span<std::byte> bytes) const override;
  bool write(int64_t row, uint64_t update, std::span<const std::byte> record) override;
  int64_t evict_before(uint64_t update) override {
    expect({});
    return frequent_.evict_before(update) + disk_->remove_before(update);
  }
  void clear() override {
    expect({});
    frequent_.clear();
    if (disk_->size() > 0) open();
  }

  int64_t size() const override { return frequent_.size() + disk_->size(); }
  int64_t rows_in_memory() const override { return frequent_.size(); }
  int64_t capacity() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t bytes() const override {
    return frequent_.bytes() + counts_.bytes() + shares_.staged + shares_.rocksdb + RocksdbRows::kOwnBytes;
  }
  int64_t disk_bytes() const override { return disk_->disk_bytes(); }
  void for_each(const Visit& visit) const override;

 private:
  void open() {
    disk_.reset();  // before another one is in its folder
    disk_ = std::make_unique<RocksdbRows>(
        RocksdbRowsOptions{options_.folder, options_.record_bytes, shares_.rocksdb});
  }
  std::optional<size_t> index_of(int64_t row) const;
  void find_to(size_t index) const;
  RocksdbRows::Update update_on_disk(int64_t row);
  void note_update(int64_t row, RocksdbRows::Update update);

  const DiskRowStoreOptions options_;
  const MemoryShares shares_;
  MemoryRowStore frequent_;
  RowCountSketch counts_;
  const int64_t most_staged_;
  int64_t num_writes_ = 0;
  std::unique_ptr<RocksdbRows> disk_;

  // Of the expected rows, the first num_found_ have been looked for on the disk: their updates are known, and
  // those from first_staged_ to end_staged_ have their records here, too.
  mutable std::vector<int64_t> expected_;
  mutable std::vector<RocksdbRows::Update> updates_;
  mutable std::vector<std::byte> staged_;
  mutable size_t num_found_ = 0, first_staged_ = 0, end_staged_ = 0;
};

std::optional<size_t> RocksdbRowStore::index_of(int64_t row) const {
  const auto found = std::lower_bound(expected_.begin(), expected_.end(), row);
  if (found == expected_.end() || *found != row) return std::nullopt;
  return static_cast<size_t>(found - expected_.begin());
}

/// Looks for the expected rows up to this one, and stages the last of them.
void RocksdbRowStore::find_to(size_t index) const {
  std::vector<int64_t> rows;
  std::vector<size_t> indices;
  while (num_found_ <= index) {
    const size_t first = num_found_;
    const size_t end = std::min(expected_.size(), first + static_cast<size_t>(most_staged_));
    rows.clear();
    indices.clear();
    for (size_t i = first; i < end; ++i) {
      if (frequent_.contains(expected_[i])) continue;
      rows.push_back(expected_[i]);
      indices.push_back(i);
    }
    std::vector<RocksdbRows::Update> found(rows.size());
    const auto bytes = static_cast<size_t>(options_.record_bytes);
    staged_.resize((end - first) * bytes);
    disk_->find(rows, found, staged_);
    // From the last to the first, records move to the places of their indices.
    for (size_t i = rows.size(); i-- > 0;) {
      updates_[indices[i]] = found[i];
      std::memmove(staged_.data() + (indices[i] - first) * bytes, staged_.data() + i * bytes, bytes);
    }
    first_staged_ = first;
    num_found_ = end_staged_ = end;
  }
}

bool RocksdbRowStore::read(int64_t row, std::span<std::byte> bytes) const {
  if (frequent_.read(row, bytes)) return true;
  if (const auto index = index_of(row)) {
    if (*index >= num_found_) find_to(*index);
    if (!updates_[*index]) return false;
    if (*index >= first_staged_ && *index < end_staged_) {
      const auto size = static_cast<size_t>(options_.record_bytes);
      std::memcpy(bytes.data(), staged_.data() + (*index - first_staged_) * size, bytes.size());
      return true;
    }
  }
  std::vector<std::byte> record(static_cast<size_t>(options_.record_bytes));
  RocksdbRows::Update update;
  disk_->find({&row, 1}, {&update, 1}, record);
  if (!update) return false;
  std::memcpy(bytes.data(), record.data(), bytes.size());
  return true;
}

/// Returns the last update of a row that is not in memory.
RocksdbRows::Update RocksdbRowStore::update_on_disk(int64_t row) {
  if (disk_->size() == 0) return std::nullopt;
  if (const auto index = index_of(row)) {
    if (*index >= num_found_) find_to(*index);
    return updates_[*index];
  }
  RocksdbRows::Update update;
  disk_->find({&row, 1}, {&update, 1}, {});
  return update;
}

void RocksdbRowStore::note_update(int64_t row, RocksdbRows::Update update) {
  if (const auto index = index_of(row); index && *index < num_found_) updates_[*index] = update;
}

bool RocksdbRowStore::write(int64_t row, uint64_t update, std::span<const std::byte> record) {
  if (++num_writes_ >= kWritesPerPlace * frequent_.capacity()) {
    counts_.halve();
    num_writes_ = 0;
  }
  const int64_t count = counts_.add(row);
  if (frequent_.contains(row)) return frequent_.write(row, update, record);
  const auto before = update_on_disk(row);
  first_staged_ = end_staged_ = 0;  // records change
  if (frequent_.size() == frequent_.capacity()) {
    const auto oldest = frequent_.oldest();
    if (counts_.count(oldest.row) >= count) {
      disk_->put(row, update, record, before);
      note_update(row, update);
      return true;
    }
    disk_->put(oldest.row, oldest.update, oldest.record, std::nullopt);
    note_update(oldest.row, oldest.update);
    frequent_.remove_oldest();
  }
  if (before) disk_->remove(row, *before);
  note_update(row, std::nullopt);
  return frequent_.write(row, update, record);
}

void RocksdbRowStore::for_each(const Visit& visit) const {
  RocksdbRows::Scan scan(*disk_);
  frequent_.for_each([&](int64_t row, uint64_t update, std::span<const std::byte> record) {
    scan.visit_to(update, visit);
    visit(row, update, record);
  });
  scan.visit_to(std::numeric_limits<uint64_t>::max(), visit);
}

}  // namespace

bool has_disk_row_store() {
  return true;
}

std::unique_ptr<RowStore> make_disk_row_store(const DiskRowStoreOptions& options) {
  if (options.record_bytes < 1)
    throw InvalidArgument("expected records of 1 byte or more, but got " +
                          std::to_string(options.record_bytes));
  const int64_t least = std::max(kLeastDiskRowMemory, RocksdbRows::kOwnBytes + 64 * options.record_bytes);
  if (options.max_bytes < least)
    throw InvalidArgument("expected at least " + std::to_string(least) +
                          " bytes of memory for rows on disk, but got " + std::to_string(options.max_bytes));
  return std::make_unique<RocksdbRowStore>(options);
}

}  // namespace lockstep
