#include "lockstep/strategies/table_lookups.h"

#include <ATen/ops/_unique2.h>

#include <tuple>

namespace lockstep {

TableRows distinct_rows(const at::Tensor& rows) {
  auto [distinct, places, counts] = at::_unique2(rows, /*sorted=*/true, /*return_inverse=*/true);
  return {.rows = std::move(distinct), .places = std::move(places)};
}

void TableLookups::add(const ServedTable& table, const at::Tensor& ids) {
  lookups_.push_back({.parameter = table.table(),
                      .ids = ids,
                      .version = static_cast<uint32_t>(ids._version()),
                      .rows = distinct_rows(table.rows_of(ids.cpu()))});
}

bool TableLookups::Lookup::is_of(const at::Tensor& given_parameter, const at::Tensor& given) const {
  // A table flattens its bags, which leaves the ids where they are.
  const bool is_laid_out_alike = (given.sizes() == ids.sizes() && given.strides() == ids.strides()) ||
                                 (given.is_contiguous() && ids.is_contiguous());
  return parameter.is_same(given_parameter) && given.data_ptr() == ids.data_ptr() &&
         given.scalar_type() == ids.scalar_type() && given.device() == ids.device() &&
         given.numel() == ids.numel() && is_laid_out_alike &&
         static_cast<uint32_t>(given._version()) == version;
}

}  // namespace lockstep
