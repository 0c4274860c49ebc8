#include <algorithm>
#include <cmath>

#include "lockstep/apps/inspect_data/value_texts.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {
namespace {

/// Returns the numbers of a column of numbers, or the lengths of another one.
const NumberSummary& summarized(const ColumnSummary& column) {
  return column.numbers.count > 0 ? column.numbers : column.lengths;
}

bool has_integers(const ColumnSummary& column) {
  return column.kind == ColumnKind::kIntegers && column.numbers.count > 0;
}

/// Lengths are told from numbers by their unit.
std::string with_unit(const ColumnSummary& column, const std::string& text) {
  const bool is_length = column.numbers.count == 0 && column.lengths.count > 0;
  return is_length ? text + (column.has_lists ? " elements" : " B") : text;
}

std::string integer_text(int64_t value) {
  // Longer ones would make tables wide.
  constexpr int64_t kMostGrouped = 1'000'000'000'000;
  if (value > -kMostGrouped && value < kMostGrouped) return grouped_number(value);
  return short_number(static_cast<double>(value), 6);
}

std::string real_text(double value) {
  constexpr double kGrouped = 1e4;
  constexpr double kMost = 1e12;
  const bool is_large = value >= kGrouped || value <= -kGrouped;
  return is_large && value < kMost && value > -kMost ? grouped_number(static_cast<int64_t>(value))
                                                     : short_number(value);
}

int64_t largest(const std::vector<int64_t>& counts) {
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

}  // namespace

std::string distinct_text(const ColumnSummary& column) {
  if (column.kind == ColumnKind::kOther) return "";
  const std::string number = grouped_number(column.values.num_distinct());
  return column.values.is_exact() ? number : "about " + number;
}

std::string least_text(const ColumnSummary& column) {
  if (has_integers(column)) return integer_text(column.least_integer);
  const NumberSummary& numbers = summarized(column);
  return numbers.count == 0 ? "" : with_unit(column, real_text(numbers.least));
}

std::string most_text(const ColumnSummary& column) {
  if (has_integers(column)) return integer_text(column.most_integer);
  const NumberSummary& numbers = summarized(column);
  return numbers.count == 0 ? "" : with_unit(column, real_text(numbers.most));
}

std::string mean_text(const ColumnSummary& column) {
  const NumberSummary& numbers = summarized(column);
  return numbers.count == 0 ? "" : with_unit(column, real_text(numbers.mean()));
}

std::string type_text(const ColumnSummary& column) {
  return printable(column.type) + (column.unit.empty() ? "" : ", in " + column.unit);
}

std::vector<std::pair<std::string, std::string>> data_facts(const DataSummary& summary) {
  const bool are_images = summary.kind == "images";
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back(are_images ? "images" : "rows",
                     summary.num_rows ? grouped_number(*summary.num_rows) : "unknown");
  if (summary.is_sample())
    facts.emplace_back(are_images ? "images read" : "rows read", grouped_number(summary.rows_read));
  facts.emplace_back("columns", grouped_number(static_cast<int64_t>(summary.columns.size())));
  if (!are_images) facts.emplace_back("files", grouped_number(static_cast<int64_t>(summary.files.size())));
  if (summary.kind == "Parquet") {
    facts.emplace_back("row groups", grouped_number(summary.num_row_groups));
    facts.emplace_back("rows of a group", summary.least_group_rows == summary.most_group_rows
                                              ? grouped_number(summary.most_group_rows)
                                              : grouped_number(summary.least_group_rows) + " to " +
                                                    grouped_number(summary.most_group_rows));
  }
  if (const std::string name = compression_of_all(summary); !name.empty())
    facts.emplace_back("compression", name);
  facts.emplace_back("stored", bytes_text(static_cast<uint64_t>(summary.stored_bytes)));
  int64_t decoded = 0, uncompressed = 0;
  for (const ColumnSummary& column : summary.columns) {
    decoded += column.decoded_bytes;
    uncompressed += column.uncompressed_bytes;
  }
  if (uncompressed > 0) facts.emplace_back("uncompressed", bytes_text(static_cast<uint64_t>(uncompressed)));
  if (decoded > 0)
    facts.emplace_back(summary.is_sample() ? "decoded, of the rows read" : "decoded",
                       bytes_text(static_cast<uint64_t>(decoded)));
  if (summary.num_malformed > 0) facts.emplace_back("malformed rows", grouped_number(summary.num_malformed));
  return facts;
}

std::string sampling_text(const DataSummary& summary) {
  if (!summary.is_sample()) return "";
  return "A sample: all numbers but those of bytes and row groups are of " +
         grouped_number(summary.rows_read) + (summary.kind == "images" ? " images" : " rows") + " (" +
         summary.sampling + ").";
}

std::string compression_of_all(const DataSummary& summary) {
  std::string found;
  for (const ColumnSummary& column : summary.columns) {
    if (!found.empty() && column.compression != found) return "";
    found = column.compression;
  }
  return found;
}

std::string odd_numbers_text(const NumberSummary& numbers) {
  std::string text;
  if (numbers.num_nan > 0) text = grouped_number(numbers.num_nan) + " NaN";
  if (numbers.num_infinite > 0)
    text += (text.empty() ? "" : " and ") + grouped_number(numbers.num_infinite) + " infinite";
  return text;
}

bool is_skewed(const NumberSummary& numbers) {
  // No axis is that long.
  if (!std::isfinite(numbers.most - numbers.least)) return numbers.count > 0;
  constexpr size_t kFewBins = 16;
  const auto& counts = numbers.bins.counts();
  return counts.size() > kFewBins && 2 * largest(counts) > numbers.count &&
         largest(numbers.magnitudes.counts()) < largest(counts);
}

}  // namespace lockstep::apps
