#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// What files may say of a tensor's size.

namespace lockstep {

constexpr size_t kMaxTensorDimensions = 64;  ///< what LibTorch's operators take

/// Bytes of a tensor, none where their number or a stride overflows. Shapes hold no negative numbers.
std::optional<uint64_t> checked_tensor_bytes(const std::vector<int64_t>& shape, uint64_t element_size);

}  // namespace lockstep
