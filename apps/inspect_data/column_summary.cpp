#include "lockstep/apps/inspect_data/column_summary.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/apps/inspect_data/image_header.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {

void NumberSummary::add(std::span<const double> numbers) {
  std::vector<double> finite, logarithms;
  finite.reserve(numbers.size());
  logarithms.reserve(numbers.size());
  for (const double number : numbers) {
    if (std::isnan(number)) {
      ++num_nan;
    } else if (std::isinf(number)) {
      ++num_infinite;
    } else {
      finite.push_back(number);
      logarithms.push_back(std::copysign(std::log2(1 + std::fabs(number)), number));
      least = std::min(least, number);
      most = std::max(most, number);
      sum += number;
    }
  }
  count += static_cast<int64_t>(finite.size());
  bins.add(finite);
  magnitudes.add(logarithms);
}

void NumberSummary::merge(const NumberSummary& other) {
  count += other.count;
  num_nan += other.num_nan;
  num_infinite += other.num_infinite;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  sum += other.sum;
  bins.merge(other.bins);
  magnitudes.merge(other.magnitudes);
}

void ImageSummary::add(std::string_view image) {
  const ImageHeader header = read_image_header(image);
  formats.add(header.format);
  if (header.width == 0 || header.height == 0) return;
  sizes.add(std::to_string(header.width) + " x " + std::to_string(header.height));
  widths.add(std::vector{static_cast<double>(header.width)});
  heights.add(std::vector{static_cast<double>(header.height)});
}

void ImageSummary::merge(const ImageSummary& other) {
  formats.merge(other.formats);
  sizes.merge(other.sizes);
  widths.merge(other.widths);
  heights.merge(other.heights);
}

void ColumnSummary::add_integers(std::span<const int64_t> added) {
  numbers.add(std::vector<double>(added.begin(), added.end()));
  for (const int64_t number : added) {
    values.add(static_cast<uint64_t>(number));
    least_integer = std::min(least_integer, number);
    most_integer = std::max(most_integer, number);
  }
}

void ColumnSummary::add_floats(std::span<const double> added) {
  numbers.add(added);
  for (const double number : added) {
    // Zero has two signs, and NaN is no value.
    if (!std::isnan(number)) values.add(std::bit_cast<uint64_t>(number == 0 ? 0.0 : number));
  }
}

void ColumnSummary::add_bytes(std::span<const std::string_view> added) {
  std::vector<double> sizes;
  for (const std::string_view bytes : added) {
    values.add(bytes);
    sizes.push_back(static_cast<double>(bytes.size()));
    if (kind == ColumnKind::kImages) images.add(bytes);
  }
  lengths.add(sizes);
}

void ColumnSummary::merge(const ColumnSummary& other) {
  decoded_bytes += other.decoded_bytes;
  num_rows += other.num_rows;
  num_nulls += other.num_nulls;
  num_null_elements += other.num_null_elements;
  numbers.merge(other.numbers);
  least_integer = std::min(least_integer, other.least_integer);
  most_integer = std::max(most_integer, other.most_integer);
  lengths.merge(other.lengths);
  values.merge(other.values);
  images.merge(other.images);
}

std::vector<std::pair<std::string, int64_t>> counted_values(const ColumnSummary& column) {
  std::vector<std::pair<std::string, int64_t>> values;
  if (column.kind == ColumnKind::kIntegers) {
    std::vector<std::pair<int64_t, int64_t>> numbers;
    for (const auto& [number, count] : column.values.of_numbers())
      numbers.emplace_back(static_cast<int64_t>(number), count);
    std::sort(numbers.begin(), numbers.end());
    for (const auto& [number, count] : numbers) values.emplace_back(std::to_string(number), count);
    return values;
  }
  for (const auto& [bits, count] : column.values.of_numbers())
    values.emplace_back(exact_number(std::bit_cast<double>(bits)), count);
  for (const auto& [text, count] : column.values.of_texts()) values.emplace_back(printable(text), count);
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return values;
}

const ColumnSummary* label_column(const DataSummary& summary) {
  const auto found = std::find_if(summary.columns.begin(), summary.columns.end(),
                                  [](const ColumnSummary& column) { return column.name == "label"; });
  return found == summary.columns.end() ? nullptr : &*found;
}

}  // namespace lockstep::apps
