#include "lockstep/strategies/nn/table_lookups.h"

#include <algorithm>
#include <utility>

#include "lockstep/strategies/nn/internal/distinct_rows.h"

namespace lockstep {

void TableLookups::add(const ServedTable& table, const at::Tensor& ids) {
  auto numbers = table.rows_of(ids.cpu());
  // If the same ids are looked up in several tables, their rows are often the same, too.
  const auto alike = std::find_if(lookups_.begin(), lookups_.end(), [&](const Lookup& other) {
    return other.ids.is_same(ids) && other.numbers.equal(numbers);
  });
  auto rows = alike == lookups_.end() ? distinct_rows(numbers) : alike->rows;
  lookups_.push_back({.parameter = table.table(),
                      .ids = ids,
                      .version = static_cast<uint32_t>(ids._version()),
                      .numbers = std::move(numbers),
                      .rows = std::move(rows)});
}

bool TableLookups::Lookup::is_of(const at::Tensor& given_parameter, const at::Tensor& given) const {
  // If both are contiguous, the shape does not matter: the ids follow in the same order.
  const bool is_laid_out_alike = (given.sizes() == ids.sizes() && given.strides() == ids.strides()) ||
                                 (given.is_contiguous() && ids.is_contiguous());
  return parameter.is_same(given_parameter) && given.data_ptr() == ids.data_ptr() &&
         given.scalar_type() == ids.scalar_type() && given.device() == ids.device() &&
         given.numel() == ids.numel() && is_laid_out_alike &&
         static_cast<uint32_t>(given._version()) == version;
}

}  // namespace lockstep
