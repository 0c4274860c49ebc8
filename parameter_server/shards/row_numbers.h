#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// Returns a view of the row numbers in `rows`, for a variable or shard of `num_rows` rows. Throws
/// InvalidArgument, with text that begins with `prefix`, unless `rows` is a contiguous int64 vector on the
/// CPU with numbers from 0 to `num_rows` - 1.
std::span<const int64_t> row_numbers(const at::Tensor& rows, int64_t num_rows, std::string_view prefix);

/// Same, but also throws unless the rows are strictly ascending.
std::span<const int64_t> ascending_row_numbers(const at::Tensor& rows, int64_t num_rows,
                                               std::string_view prefix);

}  // namespace lockstep
