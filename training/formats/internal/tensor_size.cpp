#include "lockstep/training/formats/internal/tensor_size.h"

namespace lockstep {

std::optional<uint64_t> checked_tensor_bytes(const std::vector<int64_t>& shape, uint64_t element_size) {
  // A size of zero must not hide an overflow of the other sizes, from which strides are computed.
  int64_t strides = 1;
  bool is_empty = false;
  for (const int64_t size : shape) {
    is_empty = is_empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(strides, size, &strides)) return std::nullopt;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(strides, static_cast<int64_t>(element_size), &bytes)) return std::nullopt;
  return is_empty ? 0 : static_cast<uint64_t>(bytes);
}

}  // namespace lockstep
