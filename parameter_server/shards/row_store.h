#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace lockstep {

/// Storage of rows that come and go: for each row number a record of bytes, all of one size, in the order of
/// their last use. Not thread-safe.
class RowStore {
 public:
  virtual ~RowStore() = default;

  /// Tells which rows, ascending, are going to be read in this order and then perhaps written. A store that
  /// has rows elsewhere than in memory then reads many at once. Without it, calls do the same, but more
  /// slowly.
  virtual void expect(std::span<const int64_t>) const {}
  /// Allocates the memory that this many new rows will take, so that write() does not have to.
  virtual void reserve(int64_t num_new_rows) { static_cast<void>(num_new_rows); }
  /// Copies as many of the record's first bytes as `bytes` has. Returns false if there is no such row. Does
  /// not count as a use of the row.
  virtual bool read(int64_t row, std::span<std::byte> bytes) const = 0;
  /// Sets the record of a row, used by update number `update`, which is not smaller than in earlier calls. A
  /// new row takes the place of the row that was unused for longest if there is no memory for it. Returns
  /// false, and changes nothing, if that row was used by the same update.
  virtual bool write(int64_t row, uint64_t update, std::span<const std::byte> record) = 0;
  /// Removes all rows that were last used before this update. Returns their number.
  virtual int64_t evict_before(uint64_t update) = 0;
  virtual void clear() = 0;

  virtual int64_t size() const = 0;
  /// Returns how many of the rows are in memory.
  virtual int64_t rows_in_memory() const { return size(); }
  /// Returns the largest number of rows.
  virtual int64_t capacity() const = 0;
  /// Returns the bytes of memory that are allocated, for records and everything else.
  virtual int64_t bytes() const = 0;
  /// Returns the bytes that rows take on a disk.
  virtual int64_t disk_bytes() const { return 0; }

  /// Receives a row, the update that used it last, and its record.
  using Visit = std::function<void(int64_t row, uint64_t update, std::span<const std::byte> record)>;
  /// Visits all rows, the one unused for longest first. `visit` must not change the store.
  virtual void for_each(const Visit& visit) const = 0;
};

}  // namespace lockstep
