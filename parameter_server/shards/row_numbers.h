#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// The numbers in `rows`, in its own memory, of a variable or shard of `num_rows` rows. Throws
/// InvalidArgument, whose text begins with `prefix`, for anything but a contiguous int64 vector on the CPU of
/// numbers from 0 to `num_rows` - 1.
std::span<const int64_t> row_numbers(const at::Tensor& rows, int64_t num_rows, std::string_view prefix);

/// The same; throws for rows that are not in strictly ascending order, too.
std::span<const int64_t> ascending_row_numbers(const at::Tensor& rows, int64_t num_rows,
                                               std::string_view prefix);

}  // namespace lockstep
