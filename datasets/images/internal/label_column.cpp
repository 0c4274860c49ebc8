#include "lockstep/datasets/images/internal/label_column.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

namespace {

constexpr int64_t kMostClasses = 1'000'000;

bool is_text(const ParquetColumn& column) {
  return column.shape == ParquetShape::kBytes;
}

void check_label_type(const std::string& path, const ParquetColumn& column) {
  const bool is_whole = column.shape == ParquetShape::kNumber && column.unit.empty() &&
                        c10::isIntegralType(column.type, /*includeBool=*/true);
  if (is_whole || is_text(column)) return;
  throw DataError(path, "column '" + column.name + "'", "whole numbers or strings as labels",
                  column.shape == ParquetShape::kNumber
                      ? c10::toString(column.type) + (column.unit.empty() ? "" : " in " + column.unit)
                      : "lists");
}

std::string label_text(const ParquetValues& labels, size_t row) {
  const auto* offsets = labels.offsets.const_data_ptr<int64_t>();
  const auto* bytes = reinterpret_cast<const char*>(labels.values.const_data_ptr<uint8_t>());
  return {bytes + offsets[row], static_cast<size_t>(offsets[row + 1] - offsets[row])};
}

std::vector<std::string> class_numbers(int64_t count) {
  std::vector<std::string> names;
  for (int64_t number = 0; number < count; ++number) names.push_back(std::to_string(number));
  return names;
}

[[noreturn]] void refuse_label(const ParquetDataset& rows, size_t index, const std::string& expected,
                               const std::string& actual) {
  throw DataError(row_name(rows, index), "column '" + rows.columns().front().name + "'", expected, actual);
}

}  // namespace

LabelColumn::LabelColumn(const std::string& path, const ParquetColumn& column,
                         std::vector<std::string> classes)
    : is_text_(is_text(column)), classes_(std::move(classes)) {
  check_label_type(path, column);
  for (const std::string& name : classes_) indices_.emplace(name, static_cast<int64_t>(indices_.size()));
}

std::vector<int64_t> LabelColumn::classes_of(const ParquetValues& labels) const {
  if (!is_text_) {
    const at::Tensor numbers = labels.values.to(at::kLong).contiguous();
    std::vector<int64_t> classes(numbers.const_data_ptr<int64_t>(),
                                 numbers.const_data_ptr<int64_t>() + numbers.numel());
    const auto count = static_cast<int64_t>(classes_.size());
    for (int64_t& label : classes)
      if (label < 0 || label >= count) label = -1;
    return classes;
  }
  std::vector<int64_t> classes(static_cast<size_t>(labels.offsets.numel() - 1));
  for (size_t row = 0; row < classes.size(); ++row) {
    const auto found = indices_.find(label_text(labels, row));
    classes[row] = found == indices_.end() ? -1 : found->second;
  }
  return classes;
}

std::string LabelColumn::text_of(const ParquetValues& labels, size_t row) const {
  if (!is_text_)
    return std::to_string(labels.values.to(at::kLong)[static_cast<int64_t>(row)].item<int64_t>());
  const std::string text = label_text(labels, row);
  return text.empty() ? "nothing" : "'" + text + "'";
}

std::string LabelColumn::expected() const {
  if (!is_text_) return "a number from 0 to " + std::to_string(classes_.size() - 1);
  constexpr size_t kMostNames = 5;
  std::string text = "one of the " + std::to_string(classes_.size()) + " classes ";
  for (size_t i = 0; i < std::min(classes_.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + classes_[i];
  return classes_.size() > kMostNames ? text + ", ..." : text;
}

std::vector<std::string> find_classes(const ParquetDatasetOptions& options) {
  const ParquetDataset rows(options);
  const ParquetColumn& column = rows.columns().front();
  check_label_type(rows.paths().front(), column);
  std::set<std::string> names;
  int64_t most = -1;
  size_t begin = 0;
  for (const size_t count : rows.chunk_sizes()) {
    std::vector<size_t> indices(count);
    std::iota(indices.begin(), indices.end(), begin);
    const ParquetValues labels = rows.get_batch(indices).columns.front();
    if (is_text(column)) {
      for (size_t row = 0; row < count; ++row) {
        std::string name = label_text(labels, row);
        if (!name.empty()) {
          names.insert(std::move(name));
        } else if (!options.skips_unreadable) {
          refuse_label(rows, begin + row, "the name of a class", "nothing");
        }
      }
      most = static_cast<int64_t>(names.size()) - 1;
    } else {
      const at::Tensor numbers = labels.values.to(at::kLong);
      if (const auto place = numbers.argmin().item<int64_t>();
          !options.skips_unreadable && numbers[place].item<int64_t>() < 0)
        refuse_label(rows, begin + static_cast<size_t>(place), "0 or more",
                     std::to_string(numbers[place].item<int64_t>()));
      most = std::max(most, numbers.max().item<int64_t>());
    }
    if (most >= kMostClasses)
      throw DataError(rows.paths().front(), "column '" + column.name + "'",
                      "labels of at most " + std::to_string(kMostClasses) + " classes",
                      is_text(column) ? "more" : "the label " + std::to_string(most));
    begin += count;
  }
  return is_text(column) ? std::vector<std::string>(names.begin(), names.end()) : class_numbers(most + 1);
}

std::string row_name(const ParquetDataset& rows, size_t index) {
  const ParquetPlace place = rows.place_of(index);
  return place.path + ": row group " + std::to_string(place.row_group) + ": row " + std::to_string(place.row);
}

}  // namespace lockstep
