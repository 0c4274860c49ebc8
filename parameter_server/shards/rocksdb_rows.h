#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct RocksdbRowsOptions {
  std::string folder;  ///< made anew, and removed with the object
  int64_t record_bytes = 0;
  int64_t cache_bytes = 0;  ///< limit of RocksDB's blocks and memtables together
};

/// Rows in a RocksDB: a record and the last update for each row, and the rows in the order of that update.
/// Nothing outlives the object. Functions throw std::system_error naming the folder; after that, all do.
/// Not thread-safe.
class RocksdbRows {
 public:
  /// Memory that RocksDB takes beside `cache_bytes`: its tables' descriptions, compactions, batches.
  static constexpr int64_t kOwnBytes = int64_t{4} << 20;

  explicit RocksdbRows(RocksdbRowsOptions options);
  ~RocksdbRows();
  RocksdbRows(const RocksdbRows&) = delete;
  RocksdbRows& operator=(const RocksdbRows&) = delete;

  /// The last update of a row; none if the row is not there.
  using Update = std::optional<uint64_t>;
  /// Reads rows, which are ascending: the last update of each and, unless `records` is empty, its record.
  void find(std::span<const int64_t> rows, std::span<Update> updates, std::span<std::byte> records);
  /// Sets a row. `before` is its last update so far.
  void put(int64_t row, uint64_t update, std::span<const std::byte> record, const Update& before);
  /// Removes a row that is there.
  void remove(int64_t row, uint64_t before);
  /// Removes the rows whose last update is earlier. Returns their number.
  int64_t remove_before(uint64_t update);
  int64_t size() const { return size_; }
  /// Returns the size of RocksDB's tables, which also hold some earlier records of rows.
  int64_t disk_bytes() const;

  using Visit = std::function<void(int64_t row, uint64_t update, std::span<const std::byte> record)>;
  /// Visits rows in the order of their last update. Rows must not change meanwhile.
  class Scan {
   public:
    explicit Scan(RocksdbRows& rows);
    /// Visits the next rows, as far as their last update is at most `last`.
    void visit_to(uint64_t last, const Visit& visit);

   private:
    void read_ahead();

    RocksdbRows& rows_;
    std::unique_ptr<rocksdb::Iterator> keys_;
    std::vector<int64_t> numbers_;
    std::vector<uint64_t> updates_;
    std::vector<std::byte> records_;
    size_t next_ = 0;
  };

 private:
  void open();
  /// Writes what put() and remove() have gathered.
  void settle();
  void check_space();
  void settle_if_large();
  void check(const rocksdb::Status& status);
  std::unique_ptr<rocksdb::Iterator> iterate_order();

  const RocksdbRowsOptions options_;
  rocksdb::WriteOptions write_options_;
  std::shared_ptr<rocksdb::WriteBufferManager> write_buffers_;
  std::unique_ptr<rocksdb::DB> database_;
  rocksdb::ColumnFamilyHandle* records_ = nullptr;  // by row
  rocksdb::ColumnFamilyHandle* order_ = nullptr;    // nothing, by update and row
  rocksdb::WriteBatch pending_;
  int64_t size_ = 0;
  uint64_t first_update_ = 0;  // of a row that may be there: keys before it are remains of removed ones
  int error_ = 0;              // the first one's number
  std::string error_text_;
};

}  // namespace lockstep
