#include "lockstep/parameter_server/shards/memory_row_store.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Bytes of records in a block: few enough that the last block's unused part hardly counts.
constexpr int64_t kBlockBytes = int64_t{1} << 16;
constexpr int64_t kPageBytes = 4096;

/// A block's pointers, and what the allocator adds to its two arrays, at most: to large ones, up to a page.
int64_t block_overhead(int64_t record_bytes) {
  return 96 + (record_bytes > kBlockBytes ? kPageBytes : 0);
}
/// The store itself.
constexpr int64_t kFixedBytes = 512;
constexpr int64_t kMostPlaces = std::numeric_limits<int32_t>::max();

}  // namespace

MemoryRowStore::MemoryRowStore(const MemoryRowStoreOptions& options)
    : options_(options), capacity_(kMostPlaces), oldest_(kNoPlace), newest_(kNoPlace), free_(kNoPlace) {
  if (options_.record_bytes < 1)
    throw InvalidArgument("expected records of 1 byte or more, but got " +
                          std::to_string(options_.record_bytes));
  rows_per_block_ = std::max<int64_t>(1, kBlockBytes / options_.record_bytes);
  heads_.assign(1, kNoPlace);
  if (options_.max_bytes == 0) return;
  const int64_t row_bytes = options_.record_bytes + static_cast<int64_t>(sizeof(Place) + sizeof(int32_t));
  const int64_t least = row_bytes + block_overhead(options_.record_bytes) + kFixedBytes;
  if (options_.max_bytes < least)
    throw InvalidArgument("expected at least " + std::to_string(least) +
                          " bytes, for a single row, but got a limit of " +
                          std::to_string(options_.max_bytes));
  const int64_t left = options_.max_bytes - kFixedBytes -
                       block_overhead(options_.record_bytes);  // a last block may be partly used
  const auto of_rows = [&](int64_t rows) {
    return rows * row_bytes + rows / rows_per_block_ * block_overhead(options_.record_bytes);
  };
  capacity_ = std::min(left / row_bytes, kMostPlaces);
  while (of_rows(capacity_) > left)
    capacity_ -= std::max<int64_t>(1, (of_rows(capacity_) - left) / row_bytes);
}

int64_t MemoryRowStore::bytes() const {
  const int64_t num_blocks = static_cast<int64_t>(blocks_.size());
  const int64_t num_places = std::min(num_blocks * rows_per_block_, capacity_);
  return kFixedBytes + static_cast<int64_t>(heads_.capacity() * sizeof(int32_t)) +
         num_blocks * block_overhead(options_.record_bytes) +
         num_places * (options_.record_bytes + static_cast<int64_t>(sizeof(Place)));
}

size_t MemoryRowStore::chain_of(int64_t row) const {
  // The golden ratio's multiple spreads rows; the upper half, scaled to the number of chains, needs no
  // division.
  const uint64_t hash = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15ULL >> 32;
  return static_cast<size_t>(hash * heads_.size() >> 32);
}

int32_t& MemoryRowStore::head_of(int64_t row) {
  return heads_[chain_of(row)];
}

int32_t MemoryRowStore::find(int64_t row) const {
  int32_t place = heads_[chain_of(row)];
  while (place != kNoPlace && at(place).row != row) place = at(place).next;
  return place;
}

bool MemoryRowStore::read(int64_t row, std::span<std::byte> bytes) const {
  const int32_t place = find(row);
  if (place == kNoPlace) return false;
  std::memcpy(bytes.data(), record_at(place), bytes.size());
  return true;
}

MemoryRowStore::View MemoryRowStore::oldest() const {
  const auto& own = at(oldest_);
  return {own.row, own.update, {record_at(oldest_), static_cast<size_t>(options_.record_bytes)}};
}

void MemoryRowStore::unlink(int32_t place) {
  const auto& own = at(place);
  (own.older == kNoPlace ? oldest_ : at(own.older).newer) = own.newer;
  (own.newer == kNoPlace ? newest_ : at(own.newer).older) = own.older;
}

void MemoryRowStore::append(int32_t place) {
  auto& own = at(place);
  own.older = newest_;
  own.newer = kNoPlace;
  (newest_ == kNoPlace ? oldest_ : at(newest_).newer) = place;
  newest_ = place;
}

void MemoryRowStore::remove(int32_t place) {
  unlink(place);
  auto& own = at(place);
  int32_t* link = &head_of(own.row);
  while (*link != place) link = &at(*link).next;
  *link = own.next;
  own.next = free_;
  free_ = place;
  --size_;
}

int32_t MemoryRowStore::new_place() {
  if (free_ != kNoPlace) {
    const int32_t place = free_;
    free_ = at(place).next;
    return place;
  }
  if (num_places_ == static_cast<int64_t>(blocks_.size()) * rows_per_block_) add_block();
  return static_cast<int32_t>(num_places_++);
}

void MemoryRowStore::add_block() {
  const int64_t first = static_cast<int64_t>(blocks_.size()) * rows_per_block_;
  const auto rows = static_cast<size_t>(std::min(rows_per_block_, capacity_ - first));
  Block block;
  block.records.reset(new std::byte[rows * static_cast<size_t>(options_.record_bytes)]);
  block.places.reset(new Place[rows]);
  blocks_.push_back(std::move(block));
}

void MemoryRowStore::reserve(int64_t num_new_rows) {
  const int64_t rows = std::min(size_ + num_new_rows, capacity_);
  while (static_cast<int64_t>(blocks_.size()) * rows_per_block_ < rows) add_block();
  if (rows > static_cast<int64_t>(heads_.size())) grow_heads(rows);
}

/// Makes chains for at least so many rows.
void MemoryRowStore::grow_heads(int64_t rows) {
  const size_t before = heads_.size();
  const size_t after =
      std::min(std::max(2 * before, static_cast<size_t>(rows)), static_cast<size_t>(capacity_));
  std::vector<int32_t>().swap(heads_);  // first, for the limit
  try {
    heads_.assign(after, kNoPlace);
  } catch (const std::bad_alloc&) {
    // Chains become longer instead.
    try {
      heads_.assign(before, kNoPlace);
    } catch (const std::bad_alloc&) {
      heads_.assign(1, kNoPlace);
    }
  }
  for (int32_t place = oldest_; place != kNoPlace; place = at(place).newer) {
    auto& head = head_of(at(place).row);
    at(place).next = head;
    head = place;
  }
}

bool MemoryRowStore::write(int64_t row, uint64_t update, std::span<const std::byte> record) {
  int32_t place = find(row);
  if (place == kNoPlace) {
    if (size_ == capacity_) {
      if (at(oldest_).update == update) return false;
      remove(oldest_);
    }
    if (size_ >= static_cast<int64_t>(heads_.size())) grow_heads(size_ + 1);
    place = new_place();
    auto& head = head_of(row);
    auto& own = at(place);
    own.row = row;
    own.next = head;
    head = place;
    ++size_;
  } else {
    unlink(place);
  }
  at(place).update = update;
  append(place);
  std::memcpy(record_at(place), record.data(), record.size());
  return true;
}

int64_t MemoryRowStore::evict_before(uint64_t update) {
  const int64_t before = size_;
  while (oldest_ != kNoPlace && at(oldest_).update < update) remove(oldest_);
  return before - size_;
}

void MemoryRowStore::clear() {
  std::fill(heads_.begin(), heads_.end(), kNoPlace);
  blocks_.clear();
  size_ = num_places_ = 0;
  oldest_ = newest_ = free_ = kNoPlace;
}

void MemoryRowStore::for_each(const Visit& visit) const {
  const auto bytes = static_cast<size_t>(options_.record_bytes);
  for (int32_t place = oldest_; place != kNoPlace; place = at(place).newer)
    visit(at(place).row, at(place).update, {record_at(place), bytes});
}

}  // namespace lockstep
