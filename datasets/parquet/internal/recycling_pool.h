#pragma once

#include <arrow/memory_pool.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

/// Memory for decoded columns. Large pieces that are freed are kept for the next row group, up to a limit:
/// allocators give such pieces back to the system, which then clears every page of the next one. Thread-safe.
///
/// Example:
///
///     arrow::MemoryPool* pool = recycling_pool();
///     auto buffer = arrow::AllocateBuffer(1 << 20, pool);
class RecyclingPool final : public arrow::MemoryPool {
 public:
  /// Keeps memory that nobody uses as long as it and what is used have at most `most` bytes, until
  /// change_most().
  explicit RecyclingPool(arrow::MemoryPool* from, int64_t most) : from_(from), most_(most) {}
  ~RecyclingPool() override;

  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Free;
  using arrow::MemoryPool::Reallocate;
  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override;
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** ptr) override;
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override;

  int64_t bytes_allocated() const override { return stats_.bytes_allocated(); }
  int64_t max_memory() const override { return stats_.max_memory(); }
  int64_t total_bytes_allocated() const override { return stats_.total_bytes_allocated(); }
  int64_t num_allocations() const override { return stats_.num_allocations(); }
  std::string backend_name() const override { return from_->backend_name(); }

  /// Adds `bytes`, which may be negative, to that limit, and gives back unused pieces beyond it.
  void change_most(int64_t bytes);

  /// Returns the bytes that are kept, and used by nobody.
  int64_t idle_bytes() const;

 private:
  int64_t piece_of(uint8_t* buffer) const;
  void give_back_beyond(int64_t most, int64_t spared_size);

  arrow::MemoryPool* from_;
  int64_t most_;  // guarded by mutex_
  arrow::internal::MemoryPoolStats stats_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<uint8_t*>> idle_;  // by size; guarded by mutex_, like the next
  int64_t idle_bytes_ = 0;
  int64_t used_bytes_ = 0;                        // of pieces
  std::unordered_map<uint8_t*, int64_t> pieces_;  // sizes of those that are used
};

/// Returns the pool of this process, which keeps as much as RecyclingLimit says.
RecyclingPool* recycling_pool();

}  // namespace lockstep
