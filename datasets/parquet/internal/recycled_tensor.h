#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace lockstep {

/// Returns a tensor on the CPU whose values are not set. Its memory was another's before, if possible:
/// batches are as large as pieces that allocators give back to the system, which then clears each page of the
/// next batch, and takes longer for it than the batch's rows take to be copied. Throws std::bad_alloc. In
/// builds without Arrow, it is at::empty().
at::Tensor recycled_tensor(c10::IntArrayRef shape, at::ScalarType type);

/// While one lives, memory that is no longer used is kept for recycled tensors and decoded columns, as long
/// as it and theirs have at most `bytes`, which several add up to. Without any, it is given back.
/// Thread-safe.
///
/// Example:
///
///     const RecyclingLimit limit(int64_t{1} << 30);
class RecyclingLimit {
 public:
  explicit RecyclingLimit(int64_t bytes);
  ~RecyclingLimit();
  RecyclingLimit(const RecyclingLimit&) = delete;
  RecyclingLimit& operator=(const RecyclingLimit&) = delete;

 private:
  int64_t bytes_;
};

}  // namespace lockstep
