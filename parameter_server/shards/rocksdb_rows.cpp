#include "lockstep/parameter_server/shards/rocksdb_rows.h"

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

/// Rows that are read at once: each may hold a block in memory.
constexpr size_t kRowsAtOnce = 128;
constexpr int64_t kBytesAtOnce = int64_t{256} << 10;
constexpr int64_t kBatchBytes = int64_t{256} << 10;
constexpr int kOpenTables = 64;
/// Bytes of the buffer of each table that is being written: up to four, by a flush and a compaction of each
/// family.
constexpr size_t kFileBuffer = size_t{128} << 10;
/// Two compactions at once may each write this many tables before they remove others.
constexpr int64_t kTablesOfCompactions = int64_t{2} * 10;

/// Big-endian, so that keys are in the order of the numbers, none of which is negative.
void store_key(char* key, uint64_t number) {
  for (int i = 7; i >= 0; --i, number >>= 8) key[i] = static_cast<char>(number);
}

uint64_t number_in(const char* key) {
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | static_cast<unsigned char>(key[i]);
  return number;
}

using RowKey = std::array<char, 8>;
using OrderKey = std::array<char, 16>;

RowKey key_of_row(int64_t row) {
  RowKey key{};
  store_key(key.data(), static_cast<uint64_t>(row));
  return key;
}

OrderKey key_of_order(uint64_t update, int64_t row) {
  OrderKey key{};
  store_key(key.data(), update);
  store_key(key.data() + 8, static_cast<uint64_t>(row));
  return key;
}

template <size_t kSize>
rocksdb::Slice slice_of(const std::array<char, kSize>& key) {
  return {key.data(), key.size()};
}

size_t rows_at_once(int64_t record_bytes) {
  return std::clamp<size_t>(static_cast<size_t>(kBytesAtOnce / record_bytes), 1, kRowsAtOnce);
}

int64_t table_bytes(int64_t memtable_bytes) {
  return std::clamp(2 * memtable_bytes, int64_t{2} << 20, int64_t{64} << 20);
}

rocksdb::ColumnFamilyOptions family_options(const std::shared_ptr<rocksdb::Cache>& cache,
                                            int64_t memtable_bytes, bool has_filter) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.block_size = size_t{4} << 10;
  // Else they would be beside the cache, and grow with the rows.
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  if (has_filter) table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::ColumnFamilyOptions family;
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  family.write_buffer_size = static_cast<size_t>(memtable_bytes);
  family.arena_block_size = size_t{64} << 10;
  family.max_write_buffer_number = 4;
  family.target_file_size_base = static_cast<uint64_t>(table_bytes(memtable_bytes));
  family.max_bytes_for_level_base = 8 * family.target_file_size_base;
  family.max_compaction_bytes = 8 * family.target_file_size_base;
  family.level_compaction_dynamic_level_bytes = true;
  family.compression = rocksdb::kNoCompression;  // weights hardly shrink
  family.bottommost_compression = rocksdb::kNoCompression;
  return family;
}

}  // namespace

RocksdbRows::RocksdbRows(RocksdbRowsOptions options) : options_(std::move(options)) {
  write_options_.disableWAL = true;  // nothing is read after a crash
  open();
}

void RocksdbRows::open() {
  const auto cache = rocksdb::NewLRUCache(static_cast<size_t>(options_.cache_bytes), /*num_shard_bits=*/2);
  const int64_t memtable_bytes = options_.cache_bytes / 4;
  // Memtables take their memory from the cache.
  write_buffers_ = std::make_shared<rocksdb::WriteBufferManager>(static_cast<size_t>(memtable_bytes), cache);
  rocksdb::DBOptions database;
  database.create_if_missing = true;
  database.error_if_exists = true;
  database.create_missing_column_families = true;
  database.write_buffer_manager = write_buffers_;
  database.max_open_files = kOpenTables;
  database.table_cache_numshardbits = 2;
  database.max_background_jobs = 2;
  database.writable_file_max_buffer_size = kFileBuffer;
  database.stats_dump_period_sec = 0;
  database.stats_persist_period_sec = 0;
  database.info_log_level = rocksdb::ERROR_LEVEL;
  database.keep_log_file_num = 1;
  database.avoid_flush_during_shutdown = true;
  const std::vector<rocksdb::ColumnFamilyDescriptor> families{
      {rocksdb::kDefaultColumnFamilyName, family_options(cache, memtable_bytes, /*has_filter=*/true)},
      {"order", family_options(cache, memtable_bytes, /*has_filter=*/false)}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  check(rocksdb::DB::Open(database, options_.folder, families, &handles, &opened));
  database_.reset(opened);
  records_ = handles[0];
  order_ = handles[1];
}

RocksdbRows::~RocksdbRows() {
  if (database_) {
    database_->DestroyColumnFamilyHandle(order_).PermitUncheckedError();
    database_->DestroyColumnFamilyHandle(records_).PermitUncheckedError();
    database_->Close().PermitUncheckedError();
    database_.reset();
  }
  std::error_code ignored;
  std::filesystem::remove_all(options_.folder, ignored);
}

void RocksdbRows::check(const rocksdb::Status& status) {
  if (!status.ok() && error_ == 0) {
    error_ = status.IsNoSpace() ? ENOSPC : status.IsMemoryLimit() ? ENOMEM : EIO;
    error_text_ = "cannot keep rows in '" + options_.folder + "': " + status.ToString();
  }
  if (error_ != 0) throw std::system_error(error_, std::generic_category(), error_text_);
}

/// RocksDB's background threads may end the process if a write of theirs fails, so the disk counts as full
/// a little earlier.
void RocksdbRows::check_space() {
  struct statvfs disk {};
  if (statvfs(options_.folder.c_str(), &disk) != 0) return;
  const auto left = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  const int64_t needed = kTablesOfCompactions * table_bytes(options_.cache_bytes / 4);
  if (left < needed)
    check(rocksdb::Status::NoSpace("expected at least " + std::to_string(needed) +
                                   " bytes that are free, but got " + std::to_string(left)));
}

void RocksdbRows::settle() {
  check(rocksdb::Status::OK());
  if (pending_.Count() == 0) return;
  check_space();
  check(database_->Write(write_options_, &pending_));
  pending_.Clear();
}

void RocksdbRows::settle_if_large() {
  if (static_cast<int64_t>(pending_.GetDataSize()) >= kBatchBytes) settle();
}

void RocksdbRows::find(std::span<const int64_t> rows, std::span<Update> updates,
                       std::span<std::byte> records) {
  settle();
  const auto record_bytes = static_cast<size_t>(options_.record_bytes);
  const size_t most = rows_at_once(options_.record_bytes);
  std::vector<RowKey> keys(std::min(most, rows.size()));
  std::vector<rocksdb::Slice> slices(keys.size());
  std::vector<rocksdb::PinnableSlice> values(keys.size());
  std::vector<rocksdb::Status> statuses(keys.size());
  for (size_t begin = 0; begin < rows.size(); begin += most) {
    const size_t count = std::min(most, rows.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      keys[i] = key_of_row(rows[begin + i]);
      slices[i] = slice_of(keys[i]);
    }
    database_->MultiGet(rocksdb::ReadOptions(), records_, count, slices.data(), values.data(),
                        statuses.data(), /*sorted_input=*/true);
    for (size_t i = 0; i < count; ++i) {
      updates[begin + i].reset();
      if (statuses[i].IsNotFound()) continue;
      check(statuses[i]);
      if (values[i].size() != 8 + record_bytes)
        check(rocksdb::Status::Corruption("a row of " + std::to_string(values[i].size()) + " bytes"));
      updates[begin + i] = number_in(values[i].data());
      if (!records.empty())
        std::memcpy(records.data() + (begin + i) * record_bytes, values[i].data() + 8, record_bytes);
      values[i].Reset();
    }
  }
}

void RocksdbRows::put(int64_t row, uint64_t update, std::span<const std::byte> record, const Update& before) {
  check(rocksdb::Status::OK());
  const auto key = key_of_row(row);
  const auto order = key_of_order(update, row);
  std::array<char, 8> number{};
  store_key(number.data(), update);
  const std::array<rocksdb::Slice, 2> value{
      slice_of(number), rocksdb::Slice(reinterpret_cast<const char*>(record.data()), record.size())};
  const auto own_key = slice_of(key);
  check(pending_.Put(records_, rocksdb::SliceParts(&own_key, 1), rocksdb::SliceParts(value.data(), 2)));
  if (before != update) {
    if (before) check(pending_.Delete(order_, slice_of(key_of_order(*before, row))));
    check(pending_.Put(order_, slice_of(order), rocksdb::Slice()));
  }
  first_update_ = size_ == 0 ? update : std::min(first_update_, update);
  if (!before) ++size_;
  settle_if_large();
}

void RocksdbRows::remove(int64_t row, uint64_t before) {
  check(pending_.Delete(records_, slice_of(key_of_row(row))));
  check(pending_.Delete(order_, slice_of(key_of_order(before, row))));
  --size_;
  settle_if_large();
}

int64_t RocksdbRows::disk_bytes() const {
  uint64_t sum = 0;
  for (auto* family : {records_, order_}) {
    uint64_t own = 0;
    if (database_->GetIntProperty(family, rocksdb::DB::Properties::kTotalSstFilesSize, &own)) sum += own;
  }
  return static_cast<int64_t>(sum);
}

std::unique_ptr<rocksdb::Iterator> RocksdbRows::iterate_order() {
  settle();
  std::unique_ptr<rocksdb::Iterator> keys(database_->NewIterator(rocksdb::ReadOptions(), order_));
  keys->Seek(slice_of(key_of_order(first_update_, 0)));
  return keys;
}

int64_t RocksdbRows::remove_before(uint64_t update) {
  if (size_ == 0 || first_update_ >= update) return 0;
  const int64_t size = size_;
  const auto keys = iterate_order();
  for (; keys->Valid(); keys->Next()) {
    const uint64_t own = number_in(keys->key().data());
    if (own >= update) break;
    remove(static_cast<int64_t>(number_in(keys->key().data() + 8)), own);
  }
  check(keys->status());
  first_update_ = update;
  return size - size_;
}

RocksdbRows::Scan::Scan(RocksdbRows& rows) : rows_(rows), keys_(rows.iterate_order()) {}

void RocksdbRows::Scan::read_ahead() {
  next_ = 0;
  std::vector<std::pair<int64_t, uint64_t>> ahead;  // in the order of the last update
  const size_t most = rows_at_once(rows_.options_.record_bytes);
  for (; keys_->Valid() && ahead.size() < most; keys_->Next())
    ahead.emplace_back(number_in(keys_->key().data() + 8), number_in(keys_->key().data()));
  rows_.check(keys_->status());
  // Within an update, rows ascend. A batch of several updates is read by row, and visited by update.
  std::vector<size_t> by_row(ahead.size());
  for (size_t i = 0; i < by_row.size(); ++i) by_row[i] = i;
  std::sort(by_row.begin(), by_row.end(),
            [&](size_t one, size_t other) { return ahead[one].first < ahead[other].first; });
  const auto record_bytes = static_cast<size_t>(rows_.options_.record_bytes);
  std::vector<int64_t> rows;
  rows.reserve(by_row.size());
  for (const size_t i : by_row) rows.push_back(ahead[i].first);
  std::vector<Update> found(rows.size());
  std::vector<std::byte> records(rows.size() * record_bytes);
  rows_.find(rows, found, records);
  numbers_.resize(rows.size());
  updates_.resize(rows.size());
  records_.resize(records.size());
  for (size_t i = 0; i < by_row.size(); ++i) {
    const auto& [row, update] = ahead[by_row[i]];
    if (found[i] != update)
      rows_.check(
          rocksdb::Status::Corruption("row " + std::to_string(row) + " has another update than its key"));
    numbers_[by_row[i]] = row;
    updates_[by_row[i]] = update;
    std::memcpy(records_.data() + by_row[i] * record_bytes, records.data() + i * record_bytes, record_bytes);
  }
}

void RocksdbRows::Scan::visit_to(uint64_t last, const Visit& visit) {
  const auto record_bytes = static_cast<size_t>(rows_.options_.record_bytes);
  for (;; ++next_) {
    if (next_ == numbers_.size()) read_ahead();
    if (next_ == numbers_.size() || updates_[next_] > last) return;
    visit(numbers_[next_], updates_[next_], {records_.data() + next_ * record_bytes, record_bytes});
  }
}

}  // namespace lockstep
