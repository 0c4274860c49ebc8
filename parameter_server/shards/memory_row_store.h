#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/parameter_server/shards/row_store.h"

namespace lockstep {

struct MemoryRowStoreOptions {
  int64_t record_bytes = 0;
  /// Limit of bytes(). 0: no limit.
  int64_t max_bytes = 0;
};

/// Rows in memory: a hash table with chains. Memory is allocated as rows come. When it grows, nothing is held
/// twice: records stay where they are, and the heads of the chains are made anew from the order of use.
class MemoryRowStore : public RowStore {
 public:
  /// Throws InvalidArgument if a record has no bytes or the limit has no room for a row.
  explicit MemoryRowStore(const MemoryRowStoreOptions& options);

  void reserve(int64_t num_new_rows) override;
  bool read(int64_t row, std::span<std::byte> bytes) const override;
  bool write(int64_t row, uint64_t update, std::span<const std::byte> record) override;
  int64_t evict_before(uint64_t update) override;
  void clear() override;
  int64_t size() const override { return size_; }
  int64_t bytes() const override;
  void for_each(const Visit& visit) const override;
  int64_t capacity() const override { return capacity_; }

  bool contains(int64_t row) const { return find(row) != kNoPlace; }
  /// A row with its record, which is valid until the store changes.
  struct View {
    int64_t row;
    uint64_t update;
    std::span<const std::byte> record;
  };
  /// Returns the row unused for longest. There must be one.
  View oldest() const;
  /// Removes the row unused for longest. There must be one.
  void remove_oldest() { remove(oldest_); }

 private:
  static constexpr int32_t kNoPlace = -1;
  /// A row's record is in the place of the same number.
  struct Place {
    int64_t row;
    uint64_t update;
    int32_t older, newer;  // neighbours in the order of use
    int32_t next;          // next place of the chain, or the next free one
  };
  struct Block {
    std::unique_ptr<std::byte[]> records;
    std::unique_ptr<Place[]> places;
  };

  Place& at(int32_t place) const {
    return blocks_[static_cast<size_t>(place / rows_per_block_)].places[place % rows_per_block_];
  }
  std::byte* record_at(int32_t place) const {
    return blocks_[static_cast<size_t>(place / rows_per_block_)].records.get() +
           place % rows_per_block_ * options_.record_bytes;
  }
  int32_t& head_of(int64_t row);
  int32_t find(int64_t row) const;
  size_t chain_of(int64_t row) const;
  void unlink(int32_t place);
  void append(int32_t place);
  void remove(int32_t place);
  int32_t new_place();
  void add_block();
  void grow_heads(int64_t rows);

  const MemoryRowStoreOptions options_;
  int64_t rows_per_block_;
  int64_t capacity_;
  std::vector<int32_t> heads_;
  std::vector<Block> blocks_;
  int64_t size_ = 0;
  int64_t num_places_ = 0;  // used at some time
  int32_t oldest_, newest_, free_;
};

}  // namespace lockstep
