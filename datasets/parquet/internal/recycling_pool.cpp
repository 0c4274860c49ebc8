#include "lockstep/datasets/parquet/internal/recycling_pool.h"

#include <sys/mman.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "lockstep/datasets/parquet/internal/recycled_tensor.h"

namespace lockstep {

namespace {

/// Smaller pieces are cheap to allocate.
constexpr int64_t kSmallest = int64_t{1} << 12;
/// Larger ones come straight from the system, which takes all of their pages back, whoever allocated before
/// and after them. Allocators keep some of them, and round sizes up, to more than the memory limit in the
/// end.
constexpr int64_t kSmallestMapped = int64_t{1} << 18;
/// Sizes beyond are damaged metadata.
constexpr int64_t kLargest = int64_t{1} << 62;
/// Arrow's own alignment. Pieces of another one are not kept.
constexpr int64_t kAlignment = 64;

/// Returns the size of the piece that is allocated: one of 8 steps between powers of 2, so that columns of
/// nearly the same size share pieces.
int64_t size_of_piece(int64_t size) {
  if (size < kSmallest) return size;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size))) / 8;
  return (size + step - 1) / step * step;
}

bool is_kept(int64_t size, int64_t alignment) {
  return size >= kSmallest && alignment <= kAlignment;
}

/// Returns whether a piece may be given if `wanted` is asked for. Much larger ones would be memory that
/// nobody counts.
bool is_near(int64_t piece, int64_t wanted) {
  return piece >= wanted && piece - wanted <= wanted / 4;
}

arrow::Status new_piece(arrow::MemoryPool* from, int64_t size, uint8_t** out) {
  if (size < kSmallestMapped) return from->Allocate(size, kAlignment, out);
  void* const piece = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (piece == MAP_FAILED) return arrow::Status::OutOfMemory("expected ", size, " bytes of memory");
  *out = static_cast<uint8_t*>(piece);
  return arrow::Status::OK();
}

void free_piece(arrow::MemoryPool* from, uint8_t* piece, int64_t size) {
  if (size < kSmallestMapped) {
    from->Free(piece, size, kAlignment);
  } else {
    ::munmap(piece, static_cast<size_t>(size));
  }
}

}  // namespace

RecyclingPool::~RecyclingPool() {
  for (const auto& [size, pieces] : idle_)
    for (uint8_t* piece : pieces) free_piece(from_, piece, size);
}

arrow::Status RecyclingPool::Allocate(int64_t size, int64_t alignment, uint8_t** out) {
  if (size > kLargest) return arrow::Status::OutOfMemory("expected at most 2^62 bytes, but got ", size);
  if (!is_kept(size, alignment)) {
    ARROW_RETURN_NOT_OK(from_->Allocate(size, alignment, out));
    stats_.DidAllocateBytes(size);
    return arrow::Status::OK();
  }
  const int64_t piece = size_of_piece(size);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = idle_.lower_bound(piece);
    if (found != idle_.end() && is_near(found->first, piece)) {
      *out = found->second.back();
      pieces_[*out] = found->first;
      idle_bytes_ -= found->first;
      used_bytes_ += found->first;
      found->second.pop_back();
      if (found->second.empty()) idle_.erase(found);
      stats_.DidAllocateBytes(size);
      return arrow::Status::OK();
    }
    give_back_beyond(most_ - piece, /*spared_size=*/-1);
  }
  ARROW_RETURN_NOT_OK(new_piece(from_, piece, out));
  stats_.DidAllocateBytes(size);
  const std::lock_guard<std::mutex> lock(mutex_);
  pieces_[*out] = piece;
  used_bytes_ += piece;
  return arrow::Status::OK();
}

int64_t RecyclingPool::piece_of(uint8_t* buffer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = pieces_.find(buffer);
  return found == pieces_.end() ? 0 : found->second;
}

arrow::Status RecyclingPool::Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                                        uint8_t** ptr) {
  // Arrow's readers shrink what they have allocated for the most that there may be, so pieces that are much
  // too large must not stay.
  const int64_t piece = piece_of(*ptr);
  if (piece > 0 && is_kept(new_size, alignment) && is_near(piece, size_of_piece(new_size))) {
    stats_.DidReallocateBytes(old_size, new_size);
    return arrow::Status::OK();
  }
  uint8_t* moved = nullptr;
  ARROW_RETURN_NOT_OK(Allocate(new_size, alignment, &moved));
  if (const int64_t kept = std::min(old_size, new_size); kept > 0)
    std::memcpy(moved, *ptr, static_cast<size_t>(kept));
  Free(*ptr, old_size, alignment);
  *ptr = moved;
  return arrow::Status::OK();
}

void RecyclingPool::Free(uint8_t* buffer, int64_t size, int64_t alignment) {
  stats_.DidFreeBytes(size);
  int64_t piece = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pieces_.find(buffer);
    if (found != pieces_.end()) {
      piece = found->second;
      pieces_.erase(found);
      used_bytes_ -= piece;
      // Sizes that nobody asks for any more would take the place of those that are.
      give_back_beyond(most_ - piece, /*spared_size=*/piece);
      if (used_bytes_ + idle_bytes_ + piece <= most_) {
        idle_[piece].push_back(buffer);
        idle_bytes_ += piece;
        return;
      }
    }
  }
  if (piece > 0) {
    free_piece(from_, buffer, piece);
  } else {
    from_->Free(buffer, size, alignment);
  }
}

/// Gives back unused pieces, but for those of one size, until there are no others, or all pieces have at most
/// `most` bytes.
void RecyclingPool::give_back_beyond(int64_t most, int64_t spared_size) {
  for (auto sizes = idle_.begin(); sizes != idle_.end() && used_bytes_ + idle_bytes_ > most;) {
    auto& [size, pieces] = *sizes;
    if (size == spared_size) {
      ++sizes;
      continue;
    }
    free_piece(from_, pieces.back(), size);
    idle_bytes_ -= size;
    pieces.pop_back();
    if (pieces.empty()) sizes = idle_.erase(sizes);
  }
}

void RecyclingPool::change_most(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  most_ += bytes;
  give_back_beyond(most_, /*spared_size=*/-1);
}

int64_t RecyclingPool::idle_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return idle_bytes_;
}

RecyclingPool* recycling_pool() {
  // Never destroyed: tensors may outlive static objects. Arrow's default pool would keep tens of MiB of its
  // own, which nobody else in the process uses.
  static auto* const pool = new RecyclingPool(arrow::system_memory_pool(), 0);
  return pool;
}

// Several must not overflow.
RecyclingLimit::RecyclingLimit(int64_t bytes) : bytes_(std::min(bytes, int64_t{1} << 50)) {
  recycling_pool()->change_most(bytes_);
}

RecyclingLimit::~RecyclingLimit() {
  recycling_pool()->change_most(-bytes_);
}

at::Tensor recycled_tensor(c10::IntArrayRef shape, at::ScalarType type) {
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type));
  if (bytes == 0) return at::empty(shape, type);
  uint8_t* memory = nullptr;
  if (!recycling_pool()->Allocate(bytes, &memory).ok()) throw std::bad_alloc();
  const auto free = [memory, bytes](void*) { recycling_pool()->Free(memory, bytes); };
  return at::from_blob(memory, shape, free, type);
}

}  // namespace lockstep
