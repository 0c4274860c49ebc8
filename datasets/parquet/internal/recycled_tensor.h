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

/// While one lives, up to `bytes` that nobody uses are kept for recycled tensors and decoded columns, which
/// several add up to. Without any, such memory is given back. Thread-safe.
///
/// Example:
///
///     const IdleMemory idle(int64_t{32} << 20);
class IdleMemory {
 public:
  explicit IdleMemory(int64_t bytes);
  ~IdleMemory();
  IdleMemory(const IdleMemory&) = delete;
  IdleMemory& operator=(const IdleMemory&) = delete;

 private:
  int64_t bytes_;
};

}  // namespace lockstep
