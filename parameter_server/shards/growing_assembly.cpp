#include "lockstep/parameter_server/shards/growing_assembly.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/parameter_server/shards/row_count_sketch.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

template <typename... Parts>
[[noreturn]] void refuse_growing(const Parts&... parts) {
  throw InvalidArgument(c10::str("[assemble_growing] ", parts...));
}

using NamedTensors = std::map<std::string, at::Tensor>;

bool is_of_counts(const std::string& name) {
  return name == "rows" || name == "row_last_update" || name == "row_updates" || name == "row_counts";
}

void check_numbers(const std::string& name, const at::Tensor& numbers, at::ScalarType dtype, int64_t count) {
  if (numbers.scalar_type() != dtype || numbers.dim() != 1 || numbers.numel() != count)
    refuse_growing(name, ": expected ", count, " numbers of ", dtype, ", but got ", numbers.toString(),
                   " of shape ", numbers.sizes());
}

/// A part's rows within the shard that is assembled.
struct PickedRows {
  at::Tensor numbers;  // within the table that grows
  at::Tensor updates;  // that used them last
  at::Tensor indices;  // within the part
};

/// Row numbers of the part's rows in the table that grows.
at::Tensor numbers_of(const SavedShard& part, const NamedTensors& state, const RowGrowth& growth) {
  const int64_t count = part.saved.values.size(0);
  if (const auto found = state.find("rows"); found != state.end()) {
    check_numbers("rows", found->second, at::kLong, count);
    return found->second.contiguous();
  }
  if (!growth.takes_numbered_rows)
    refuse_growing("expected rows of a table that grows, but got rows ", part.rows.begin, " to ",
                   part.rows.end - 1, " of one that does not: hashes of ids may number them");
  if (part.rows.begin < 0 || part.rows.size() != count || part.rows.end > int64_t{1} << growth.num_bits)
    refuse_growing("values: expected rows ", part.rows.begin, " to ", part.rows.end - 1,
                   ", but got a tensor of shape ", part.saved.values.sizes());
  auto numbers = at::arange(part.rows.begin, part.rows.end);
  auto* number = numbers.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) number[i] = scattered_row(number[i], growth.num_bits);
  return numbers;
}

PickedRows picked_rows(const SavedShard& part, const NamedTensors& state, const FilteredRows& filtered,
                       const RowGrowth& growth) {
  const auto& rows = filtered.rows;
  const auto numbers = numbers_of(part, state, growth);
  const auto update = static_cast<int64_t>(part.saved.version);
  auto updates = at::full({numbers.numel()}, update, at::kLong);
  if (const auto found = state.find("row_last_update"); found != state.end()) {
    check_numbers("row_last_update", found->second, at::kLong, numbers.numel());
    updates = found->second;
  }
  auto chosen = (numbers >= rows.begin).logical_and(numbers < rows.end);
  if (const auto found = state.find("row_updates"); found != state.end()) {
    check_numbers("row_updates", found->second, at::kInt, numbers.numel());
    // Counts end at the frequency that the saved table asked for, whatever this one asks for.
    const RowFilter filter = part.filter.value_or(filtered.filter);
    chosen = chosen.logical_and(found->second >= std::max<int64_t>(1, filter.min_frequency));
    if (filter.steps_to_live > 0) chosen = chosen.logical_and(update - updates < filter.steps_to_live);
  }
  const auto indices = chosen.nonzero().squeeze(1);
  return {numbers.index_select(0, indices), updates.index_select(0, indices), indices};
}

/// Returns the larger counts of both, in a sketch of the smaller width.
at::Tensor united_counts(const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined()) return other;
  RowCountSketch::check(one);
  RowCountSketch::check(other);
  const int64_t width = std::min(one.size(1), other.size(1));
  return at::maximum(RowCountSketch::resized(one, width), RowCountSketch::resized(other, width));
}

}  // namespace

ParameterShard::Saved assemble_growing(const std::vector<SavedShard>& parts, const FilteredRows& filtered,
                                       const RowGrowth& growth) {
  if (growth.num_bits < 2 || growth.num_bits > 62)
    refuse_growing("num_bits: expected 2 to 62, but got ", growth.num_bits);
  ParameterShard::Saved result;
  AppliedPushes pushes;
  std::vector<PickedRows> picked;
  std::vector<uint64_t> versions;            // of the parts
  std::vector<std::string> names;            // of the state by row
  std::vector<std::vector<at::Tensor>> cut;  // values and state, for each part
  at::Tensor step, counts;
  for (const auto& part : parts) {
    const auto& [values, optimizer, version, applied] = part.saved;
    const NamedTensors state(optimizer.begin(), optimizer.end());
    for (const auto& [name, tensor] : state)
      if (!tensor.defined()) refuse_growing(name, ": expected a tensor, but got none");
    if (!values.defined() || values.dim() == 0) refuse_growing("values: expected rows, but got none");
    if (part.rows == filtered.rows && state.contains("rows")) return part.saved;
    picked.push_back(picked_rows(part, state, filtered, growth));
    std::vector<std::string> own_names;
    std::vector<at::Tensor> own{values.index_select(0, picked.back().indices)};
    for (const auto& [name, tensor] : optimizer) {
      if (name == "row_counts") counts = united_counts(counts, tensor);
      if (is_of_counts(name)) continue;
      if (tensor.dim() == 0) {
        if (!step.defined() || tensor.item<double>() > step.item<double>()) step = tensor;
        continue;
      }
      if (tensor.sizes() != values.sizes())
        refuse_growing(name, ": expected a tensor of shape ", values.sizes(), ", but got ", tensor.sizes());
      own_names.push_back(name);
      own.push_back(tensor.index_select(0, picked.back().indices));
    }
    if (cut.empty()) names = own_names;
    if (names != own_names)
      refuse_growing("expected ", c10::Join(" and ", names), ", but got ", c10::Join(" and ", own_names));
    for (size_t i = 0; i < own.size(); ++i) {
      const auto& first = cut.empty() ? own[i] : cut.front()[i];
      if (own[i].scalar_type() != first.scalar_type() || own[i].sizes().slice(1) != first.sizes().slice(1))
        refuse_growing("expected rows of ", first.toString(), " of shape ", first.sizes().slice(1),
                       ", but got ", own[i].toString(), " of ", own[i].sizes().slice(1));
    }
    cut.push_back(std::move(own));
    result.version = std::max(result.version, version);
    versions.push_back(version);
    pushes.unite(AppliedPushes::restored(applied));
  }
  if (cut.empty() || !step.defined())
    refuse_growing("expected saved shards with a count of steps, but got none");

  std::vector<at::Tensor> numbers, updates;
  for (size_t i = 0; i < picked.size(); ++i) {
    numbers.push_back(picked[i].numbers);
    // Each part counts its own updates. A row stays as old as it was.
    updates.push_back(picked[i].updates + static_cast<int64_t>(result.version - versions[i]));
  }
  const auto all_numbers = at::cat(numbers), all_updates = at::cat(updates);
  // In the order of last use, then of row numbers.
  const auto by_number = all_numbers.argsort();
  const auto ascending = all_numbers.index_select(0, by_number);
  for (int64_t i = 1; i < ascending.numel(); ++i) {
    const auto* number = ascending.data_ptr<int64_t>() + i;
    if (number[0] == number[-1])
      refuse_growing("expected each row in one part, but got row ", *number, " in two");
  }
  const auto by_update =
      std::get<1>(at::sort(all_updates.index_select(0, by_number), std::optional<bool>(true), /*dim=*/0));
  const auto order = by_number.index_select(0, by_update);
  const auto joined = [&](size_t which) {
    std::vector<at::Tensor> own;
    for (const auto& part : cut) own.push_back(part[which]);
    return at::cat(own).index_select(0, order);
  };
  result.values = joined(0);
  result.optimizer.emplace_back("step", step.clone());
  for (size_t i = 0; i < names.size(); ++i) result.optimizer.emplace_back(names[i], joined(i + 1));
  result.optimizer.emplace_back("rows", all_numbers.index_select(0, order));
  result.optimizer.emplace_back("row_last_update", all_updates.index_select(0, order));
  if (counts.defined()) result.optimizer.emplace_back("row_counts", counts);
  result.pushes = pushes.saved();
  return result;
}

}  // namespace lockstep
