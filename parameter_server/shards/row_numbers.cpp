#include "lockstep/parameter_server/shards/row_numbers.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

std::span<const int64_t> row_numbers(const at::Tensor& rows, int64_t num_rows, std::string_view prefix) {
  if (!rows.defined() || rows.dim() != 1 || rows.scalar_type() != at::kLong || !rows.is_contiguous() ||
      !rows.is_cpu())
    throw InvalidArgument(
        c10::str(prefix, "expected rows as an int64 vector on the CPU, but got ",
                 rows.defined() ? c10::str(rows.toString(), " of shape ", rows.sizes()) : "none"));
  const std::span<const int64_t> numbers(rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel()));
  for (const int64_t row : numbers)
    if (row < 0 || row >= num_rows)
      throw InvalidArgument(c10::str(prefix, "expected rows of 0 to ", num_rows - 1, ", but got ", row));
  return numbers;
}

std::span<const int64_t> ascending_row_numbers(const at::Tensor& rows, int64_t num_rows,
                                               std::string_view prefix) {
  const auto numbers = row_numbers(rows, num_rows, prefix);
  const auto wrong = std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>());
  if (wrong != numbers.end())
    throw InvalidArgument(
        c10::str(prefix, "expected rows in ascending order, but got ", *(wrong + 1), " after ", *wrong));
  return numbers;
}

}  // namespace lockstep
