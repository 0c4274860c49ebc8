#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Ids as one rank sees them that has some of the vocabulary.
struct VocabularyPart {
  at::Tensor local;         ///< numbers among the rank's own entries; 0 for ids of other ranks
  at::Tensor is_elsewhere;  ///< whether the id is another rank's
};

/// Returns the part of the rank that has `count` entries from `begin` on.
VocabularyPart part_of_ids(const at::Tensor& ids, int64_t begin, int64_t count);

/// Throws InvalidArgument, starting with `who`, for ids that are not int64 or int32 and, on a CPU, for an id
/// outside of 0 to `vocabulary` - 1 other than `ignored`. On a GPU, such an id fails the device.
void check_ids(const std::string& who, const at::Tensor& ids, int64_t vocabulary,
               std::optional<int64_t> ignored = std::nullopt);

}  // namespace lockstep
