#include "lockstep/parameter_server/shards/growing_assembly.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/parameter_server/shards/merged_rows.h"
#include "lockstep/parameter_server/shards/row_count_sketch.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

template <typename... Parts>
[[noreturn]] void refuse_growing(const Parts&... parts) {
  throw InvalidArgument(c10::str("[assemble_growing] ", parts...));
}

void check_growth(const RowGrowth& growth) {
  if (growth.num_bits < 2 || growth.num_bits > 62)
    refuse_growing("num_bits: expected 2 to 62, but got ", growth.num_bits);
}

void check_numbers(const std::string& name, const at::Tensor& numbers, at::ScalarType dtype, int64_t count) {
  if (numbers.scalar_type() != dtype || numbers.dim() != 1 || numbers.numel() != count)
    refuse_growing(name, ": expected ", count, " numbers of ", dtype, ", but got ", numbers.toString(),
                   " of shape ", numbers.sizes());
}

bool is_growing(const SavedShard& part) {
  if (part.saved.rows) return true;
  return std::any_of(part.saved.optimizer.begin(), part.saved.optimizer.end(),
                     [](const auto& each) { return each.first == "rows"; });
}

/// The state that belongs to rows.
RowPiece rows_in(const ParameterShard::Saved& saved) {
  RowPiece all{saved.values, {}};
  for (const auto& [name, tensor] : saved.optimizer)
    if (name != "row_counts" && (!tensor.defined() || tensor.dim() > 0)) all.state.emplace_back(name, tensor);
  return all;
}

/// Row numbers, in the table that grows, of the rows of a table with numbered rows.
at::Tensor scattered_numbers(const SavedShard& part, const RowGrowth& growth) {
  const auto& values = part.saved.values;
  if (!growth.takes_numbered_rows)
    refuse_growing("expected rows of a table that grows, but got rows ", part.rows.begin, " to ",
                   part.rows.end - 1, " of one that does not: hashes of ids may number them");
  if (part.rows.begin < 0 || part.rows.size() != values.size(0) ||
      part.rows.end > int64_t{1} << growth.num_bits)
    refuse_growing("values: expected rows ", part.rows.begin, " to ", part.rows.end - 1,
                   ", but got a tensor of shape ", values.sizes());
  auto numbers = at::arange(part.rows.begin, part.rows.end);
  auto* number = numbers.data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) number[i] = scattered_row(number[i], growth.num_bits);
  return numbers;
}

/// Returns the larger counts of both, in a sketch of the smaller width.
at::Tensor united_counts(const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined()) return other;
  RowCountSketch::check(one);
  RowCountSketch::check(other);
  const int64_t width = std::min(one.size(1), other.size(1));
  return at::maximum(RowCountSketch::resized(one, width), RowCountSketch::resized(other, width));
}

/// Throws if a row is in two parts.
void check_apart(const std::vector<SavedShard>& parts) {
  std::vector<RowRange> ranges;
  for (const auto& part : parts) ranges.push_back(part.rows);
  std::sort(ranges.begin(), ranges.end(),
            [](const RowRange& one, const RowRange& other) { return one.begin < other.begin; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      refuse_growing("expected each row in one part, but got row ", ranges[i].begin, " in two");
}

}  // namespace

ParameterShard::Saved growing_part(const SavedShard& part, const FilteredRows& filtered,
                                   const RowGrowth& growth) {
  check_growth(growth);
  const auto& [values, optimizer, version, pushes, rows] = part.saved;
  if (!values.defined() || values.dim() == 0) refuse_growing("values: expected rows, but got none");
  for (const auto& [name, tensor] : optimizer)
    if (!tensor.defined()) refuse_growing(name, ": expected a tensor, but got none");
  ParameterShard::Saved result{values.narrow(0, 0, 0).clone(), {}, version, pushes, rows};
  for (const auto& [name, tensor] : optimizer)
    if (tensor.dim() == 0 || name == "row_counts") result.optimizer.emplace_back(name, tensor);
  if (is_growing(part)) {
    try {
      if (!rows) result.rows = std::make_shared<TensorRows>(rows_in(part.saved));
    } catch (const InvalidArgument& error) {
      refuse_growing(error.what());
    }
    return result;
  }
  const auto numbers = scattered_numbers(part, growth);
  auto updates = at::full({numbers.numel()}, static_cast<int64_t>(version), at::kLong);
  auto chosen = (numbers >= filtered.rows.begin).logical_and(numbers < filtered.rows.end);
  const auto all = rows_in(part.saved);
  if (const auto own = all.find("row_last_update"); own.defined()) {
    check_numbers("row_last_update", own, at::kLong, numbers.numel());
    updates = own;
  }
  if (const auto counts = all.find("row_updates"); counts.defined()) {
    check_numbers("row_updates", counts, at::kInt, numbers.numel());
    // Counts end at the frequency that the saved table asked for, whatever this one asks for.
    const RowFilter filter = part.filter.value_or(filtered.filter);
    chosen = chosen.logical_and(counts >= std::max<int64_t>(1, filter.min_frequency));
    if (filter.steps_to_live > 0)
      chosen = chosen.logical_and(static_cast<int64_t>(version) - updates < filter.steps_to_live);
  }
  // In the order of last use, then of row numbers.
  auto order = chosen.nonzero().squeeze(1);
  order = order.index_select(0, numbers.index_select(0, order).argsort());
  order = order.index_select(
      0, std::get<1>(at::sort(updates.index_select(0, order), std::optional<bool>(true), /*dim=*/0)));
  RowPiece picked{values.index_select(0, order), {}};
  for (const auto& [name, tensor] : all.state) {
    if (name == "row_updates" || name == "row_last_update") continue;
    if (tensor.sizes() != values.sizes())
      refuse_growing(name, ": expected a tensor of shape ", values.sizes(), ", but got ", tensor.sizes());
    picked.state.emplace_back(name, tensor.index_select(0, order));
  }
  picked.state.emplace_back("rows", numbers.index_select(0, order));
  picked.state.emplace_back("row_last_update", updates.index_select(0, order));
  result.rows = std::make_shared<TensorRows>(std::move(picked));
  return result;
}

ParameterShard::Saved assemble_growing(const std::vector<SavedShard>& parts, const FilteredRows& filtered,
                                       const RowGrowth& growth) {
  check_growth(growth);
  for (const auto& part : parts)
    if (part.rows == filtered.rows && is_growing(part)) return part.saved;
  check_apart(parts);
  ParameterShard::Saved result;
  AppliedPushes pushes;
  at::Tensor step, counts;
  std::vector<ParameterShard::Saved> growing;
  for (const auto& part : parts) {
    growing.push_back(growing_part(part, filtered, growth));
    const auto& [values, optimizer, version, applied, rows] = growing.back();
    for (const auto& [name, tensor] : optimizer) {
      if (name == "row_counts") {
        counts = united_counts(counts, tensor);
      } else if (!step.defined() || tensor.item<double>() > step.item<double>()) {
        step = tensor;
      }
    }
    if (!result.values.defined()) result.values = values;
    if (values.scalar_type() != result.values.scalar_type() || values.sizes() != result.values.sizes())
      refuse_growing("expected rows of ", result.values.toString(), " of shape ",
                     result.values.sizes().slice(1), ", but got ", values.toString(), " of ",
                     values.sizes().slice(1));
    result.version = std::max(result.version, version);
    pushes.unite(AppliedPushes::restored(applied));
  }
  if (growing.empty() || !step.defined())
    refuse_growing("expected saved shards with a count of steps, but got none");
  result.optimizer.emplace_back("step", step.clone());
  if (counts.defined()) result.optimizer.emplace_back("row_counts", counts);
  result.pushes = pushes.saved();
  auto merged = std::make_shared<MergedRows>(filtered.rows);
  // Each part counts its own updates. A row stays as old as it was.
  for (auto& part : growing) merged->add(std::move(part.rows), result.version - part.version);
  result.rows = std::move(merged);
  return result;
}

}  // namespace lockstep
