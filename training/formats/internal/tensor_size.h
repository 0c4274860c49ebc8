#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// Limits on tensor sizes in files.

namespace lockstep {

constexpr size_t kMaxTensorDimensions = 64;  ///< limit of LibTorch's operators

/// Returns the bytes of a tensor; none if their number or a stride overflows. `shape` must not contain
/// negative numbers.
std::optional<uint64_t> checked_tensor_bytes(const std::vector<int64_t>& shape, uint64_t element_size);

}  // namespace lockstep
