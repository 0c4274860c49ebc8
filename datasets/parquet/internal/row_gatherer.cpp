#include "lockstep/datasets/parquet/internal/row_gatherer.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "lockstep/datasets/parquet/internal/recycled_tensor.h"

namespace lockstep {

namespace {

bool has_any_length(const ParquetValues& values) {
  return values.offsets.defined();
}

/// Returns whether each number is one more than the number before it.
bool is_run(c10::ArrayRef<int64_t> numbers) {
  for (size_t i = 1; i < numbers.size(); ++i)
    if (numbers[i] != numbers[i - 1] + 1) return false;
  return !numbers.empty();
}

/// Copies values that are as wide as a column's rows.
template <typename Value>
void gather(const char* from, char* to, c10::ArrayRef<int64_t> rows, c10::ArrayRef<int64_t> places,
            bool has_places_in_a_row) {
  const auto* source = reinterpret_cast<const Value*>(from);
  auto* target = reinterpret_cast<Value*>(to);
  if (has_places_in_a_row) {
    target += places.front();
    for (const int64_t row : rows) *target++ = source[row];
  } else {
    for (size_t i = 0; i < rows.size(); ++i) target[places[i]] = source[rows[i]];
  }
}

/// Numbers that each are one more than the number before them.
struct Runs {
  bool rows = false;
  bool places = false;
};

void gather_rows(const at::Tensor& from, const at::Tensor& to, c10::ArrayRef<int64_t> rows,
                 c10::ArrayRef<int64_t> places, const Runs& runs) {
  if (rows.empty() || from.numel() == 0) return;
  const auto width = static_cast<size_t>(from.element_size() * (from.numel() / from.size(0)));
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  if (runs.rows && runs.places) {
    std::memcpy(target + static_cast<size_t>(places.front()) * width,
                source + static_cast<size_t>(rows.front()) * width, width * rows.size());
    return;
  }
  switch (width) {
    case 1:
      return gather<uint8_t>(source, target, rows, places, runs.places);
    case 2:
      return gather<uint16_t>(source, target, rows, places, runs.places);
    case 4:
      return gather<uint32_t>(source, target, rows, places, runs.places);
    case 8:
      return gather<uint64_t>(source, target, rows, places, runs.places);
    default:
      for (size_t i = 0; i < rows.size(); ++i) {
        std::memcpy(target + static_cast<size_t>(places[i]) * width,
                    source + static_cast<size_t>(rows[i]) * width, width);
      }
  }
}

}  // namespace

int64_t num_rows(const ParquetValues& values) {
  return has_any_length(values) ? values.offsets.size(0) - 1 : values.values.size(0);
}

ParquetValues slice_rows(const ParquetValues& values, int64_t begin, int64_t end) {
  if (!has_any_length(values)) return {.values = values.values.slice(0, begin, end), .offsets = {}};
  const at::Tensor offsets = values.offsets.slice(0, begin, end + 1);
  const auto first = offsets[0].item<int64_t>();
  const auto last = offsets[end - begin].item<int64_t>();
  return {.values = values.values.slice(0, first, last), .offsets = offsets - first};
}

ParquetValues cat_rows(const std::vector<ParquetValues>& parts) {
  if (parts.size() == 1) return parts.front();
  std::vector<at::Tensor> values, offsets;
  int64_t before = 0;
  for (const ParquetValues& part : parts) {
    values.push_back(part.values);
    if (!has_any_length(part)) continue;
    offsets.push_back((offsets.empty() ? part.offsets : part.offsets.slice(0, 1)) + before);
    before += part.values.size(0);
  }
  return {.values = at::cat(values), .offsets = offsets.empty() ? at::Tensor() : at::cat(offsets)};
}

void RowGatherer::add(const std::vector<ParquetValues>& group, c10::ArrayRef<int64_t> rows,
                      c10::ArrayRef<int64_t> places) {
  columns_.resize(group.size());
  const Runs runs{.rows = is_run(rows), .places = is_run(places)};
  for (size_t i = 0; i < group.size(); ++i) {
    const ParquetValues& from = group[i];
    Column& column = columns_[i];
    if (!has_any_length(from)) {
      at::Tensor& to = column.result.values;
      if (!to.defined()) {
        std::vector<int64_t> shape = from.values.sizes().vec();
        shape[0] = count_;
        to = recycled_tensor(shape, from.values.scalar_type());
      }
      gather_rows(from.values, to, rows, places, runs);
      continue;
    }
    const auto* offsets = from.offsets.const_data_ptr<int64_t>();
    Lists lists{.values = {}, .places = places.vec(), .lengths = {}};
    lists.lengths.reserve(rows.size());
    int64_t total = 0;
    for (const int64_t row : rows) {
      lists.lengths.push_back(offsets[row + 1] - offsets[row]);
      total += lists.lengths.back();
    }
    lists.values = at::empty({total}, from.values.options());
    const auto width = static_cast<size_t>(from.values.element_size());
    const auto* source = static_cast<const char*>(from.values.const_data_ptr());
    auto* target = static_cast<char*>(lists.values.mutable_data_ptr());
    for (size_t j = 0; j < rows.size(); ++j) {
      const size_t bytes = width * static_cast<size_t>(lists.lengths[j]);
      if (bytes > 0) std::memcpy(target, source + width * static_cast<size_t>(offsets[rows[j]]), bytes);
      target += bytes;
    }
    column.lists.push_back(std::move(lists));
  }
}

std::vector<ParquetValues> RowGatherer::finish() {
  std::vector<ParquetValues> results;
  for (Column& column : columns_) {
    if (column.lists.empty()) {
      results.push_back(std::move(column.result));
      continue;
    }
    at::Tensor offsets = at::empty({count_ + 1}, at::kLong);
    auto* ends = offsets.mutable_data_ptr<int64_t>();
    ends[0] = 0;
    for (const Lists& lists : column.lists)
      for (size_t i = 0; i < lists.places.size(); ++i) ends[lists.places[i] + 1] = lists.lengths[i];
    for (int64_t i = 0; i < count_; ++i) ends[i + 1] += ends[i];
    const Lists& first = column.lists.front();
    // Lists of one row group that were asked for in their order are where they belong.
    if (column.lists.size() == 1 && std::is_sorted(first.places.begin(), first.places.end())) {
      results.push_back({.values = first.values, .offsets = offsets});
      continue;
    }
    at::Tensor values = at::empty({ends[count_]}, first.values.options());
    const auto width = static_cast<size_t>(values.element_size());
    auto* target = static_cast<char*>(values.mutable_data_ptr());
    for (const Lists& lists : column.lists) {
      const auto* source = static_cast<const char*>(lists.values.const_data_ptr());
      for (size_t i = 0; i < lists.places.size(); ++i) {
        const size_t bytes = width * static_cast<size_t>(lists.lengths[i]);
        if (bytes > 0)
          std::memcpy(target + width * static_cast<size_t>(ends[lists.places[i]]), source, bytes);
        source += bytes;
      }
    }
    results.push_back({.values = values, .offsets = offsets});
  }
  return results;
}

}  // namespace lockstep
