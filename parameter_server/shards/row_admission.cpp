#include "lockstep/parameter_server/shards/row_admission.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <limits>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

const FilteredRows& checked(const FilteredRows& filtered) {
  for (const auto& [name, value] : {std::pair("min_frequency", filtered.filter.min_frequency),
                                    std::pair("steps_to_live", filtered.filter.steps_to_live)}) {
    if (value < 0 || value > std::numeric_limits<int32_t>::max())
      throw InvalidArgument(c10::str("[RowFilter] ", name, ": expected 0 to ",
                                     std::numeric_limits<int32_t>::max(), ", but got ", value));
  }
  return filtered;
}

}  // namespace

RowAdmission::RowAdmission(const FilteredRows& filtered)
    : filtered_(checked(filtered)), updates_(at::zeros({filtered.rows.size()}, at::kInt)) {
  if (filtered_.filter.steps_to_live > 0) last_ = at::zeros({filtered_.rows.size()}, at::kLong);
}

RowAdmission::Noted RowAdmission::note(std::span<const int64_t> rows, uint64_t version) {
  auto* const updates = updates_.data_ptr<int32_t>();
  auto* const last = last_.defined() ? last_.data_ptr<int64_t>() : nullptr;
  Noted noted;
  std::vector<int64_t> admitted;
  admitted.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i];
    if (is_expired(row, version - 1)) {
      noted.expired.push_back(row);
      updates[row] = 0;
    }
    if (last != nullptr) last[row] = static_cast<int64_t>(version);
    // The count stops at min_frequency.
    if (updates[row] < filtered_.filter.min_frequency) ++updates[row];
    if (updates[row] == 0) updates[row] = 1;
    if (updates[row] >= filtered_.filter.min_frequency) admitted.push_back(static_cast<int64_t>(i));
  }
  if (admitted.size() < rows.size()) noted.admitted = at::tensor(admitted, at::kLong);
  return noted;
}

bool RowAdmission::is_expired(int64_t row, uint64_t version) const {
  return last_.defined() && updates_.const_data_ptr<int32_t>()[row] > 0 &&
         version - static_cast<uint64_t>(last_.const_data_ptr<int64_t>()[row]) >=
             static_cast<uint64_t>(filtered_.filter.steps_to_live);
}

at::Tensor RowAdmission::initial_row(int64_t row, const at::Tensor& like) const {
  return make_values(filtered_.initial, {filtered_.rows.begin + row, filtered_.rows.begin + row + 1}, like);
}

std::vector<std::pair<std::string, at::Tensor>> RowAdmission::state() const {
  std::vector<std::pair<std::string, at::Tensor>> named{{"row_updates", updates_}};
  if (last_.defined()) named.emplace_back("row_last_update", last_);
  return named;
}

}  // namespace lockstep
