#include "lockstep/apps/inspect_data/data_text.h"

#include <algorithm>
#include <cmath>

#include "lockstep/apps/inspect_data/value_texts.h"
#include "lockstep/apps/shared/command_line/aligned_table.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {
namespace {

constexpr size_t kLongestCell = 28;
constexpr size_t kMostClasses = 20;

/// Returns a row of blocks as high as the counts of the bins.
std::string small_histogram(const NumberSummary& numbers) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr size_t kColumns = 16;
  const auto& counts = (is_skewed(numbers) ? numbers.magnitudes : numbers.bins).counts();
  if (counts.empty()) return "";
  const size_t columns = std::min(kColumns, counts.size());
  std::vector<int64_t> heights(columns);
  for (size_t i = 0; i < counts.size(); ++i) heights[i * columns / counts.size()] += counts[i];
  const int64_t highest = *std::max_element(heights.begin(), heights.end());
  std::string text;
  for (const int64_t height : heights) {
    const double share = static_cast<double>(height) / static_cast<double>(highest);
    text += height == 0 ? " " : kBlocks[std::min<size_t>(7, static_cast<size_t>(share * 8))];
  }
  return text + (is_skewed(numbers) ? " log" : "");
}

std::string columns_text(const DataSummary& summary) {
  const bool has_bytes = summary.kind == "Parquet";
  TextTable rows{{"column", "type", "nulls", "distinct", "least", "mean", "most"}};
  const bool has_compression = has_bytes && compression_of_all(summary).empty();
  if (has_compression) rows[0].insert(rows[0].begin() + 2, "compression");
  if (has_bytes) rows[0].insert(rows[0].begin() + 2, "stored");
  rows[0].emplace_back("histogram");
  for (const ColumnSummary& column : summary.columns) {
    std::vector<std::string> row{shortened(printable(column.name), kLongestCell),
                                 shortened(type_text(column), kLongestCell)};
    if (has_bytes) row.push_back(bytes_text(static_cast<uint64_t>(column.stored_bytes)));
    if (has_compression) row.push_back(column.compression);
    const bool is_read = column.kind != ColumnKind::kOther;
    row.push_back(is_read ? grouped_number(column.num_nulls) : "not read");
    row.push_back(distinct_text(column));
    for (const auto& text : {least_text(column), mean_text(column), most_text(column)}) row.push_back(text);
    row.push_back(small_histogram(column.numbers.count > 0 ? column.numbers : column.lengths));
    rows.push_back(std::move(row));
  }
  return "\nColumns\n" + aligned_table(rows, {.first = 2, .last = rows[0].size() - 2});
}

std::string counts_text(const std::string& title,
                        const std::vector<std::pair<std::string, int64_t>>& values) {
  if (values.empty()) return "";
  constexpr double kLongestBar = 30;
  int64_t all = 0, highest = 0;
  for (const auto& [value, count] : values) {
    all += count;
    highest = std::max(highest, count);
  }
  TextTable rows;
  for (size_t i = 0; i < std::min(values.size(), kMostClasses); ++i) {
    const auto& [value, count] = values[i];
    const double share = static_cast<double>(count) / static_cast<double>(all);
    const auto length = static_cast<size_t>(
        std::ceil(kLongestBar * static_cast<double>(count) / static_cast<double>(highest)));
    std::string bar;
    for (size_t j = 0; j < length; ++j) bar += "▇";
    rows.push_back({value.empty() ? "(empty)" : shortened(value, kLongestCell), grouped_number(count),
                    percent_text(share), bar});
  }
  std::string text = "\n" + title + "\n" + aligned_table(rows, {.first = 1, .last = 2});
  if (values.size() > kMostClasses)
    text += "  and " + grouped_number(static_cast<int64_t>(values.size() - kMostClasses)) + " more\n";
  return text;
}

/// Returns lengths of lists, whose elements the table shows, and the sizes of images.
std::string details_text(const ColumnSummary& column) {
  std::string text;
  const std::string name = printable(column.name);
  const auto range = [](const NumberSummary& numbers) {
    if (numbers.least == numbers.most) return grouped_number(static_cast<int64_t>(numbers.most)) + " each";
    return grouped_number(static_cast<int64_t>(numbers.least)) + " to " +
           grouped_number(static_cast<int64_t>(numbers.most)) + ", " + short_number(numbers.mean()) +
           " on average";
  };
  if (const std::string odd = odd_numbers_text(column.numbers); !odd.empty())
    text += "\nNumbers in " + name + "\n  " + odd + ", which no other number counts\n";
  if (column.has_lists && column.lengths.count > 0)
    text +=
        "\nLists in " + name + "\n  elements: " + range(column.lengths) + "\n" +
        (column.num_null_elements > 0 ? "  " + grouped_number(column.num_null_elements) + " null elements\n"
                                      : "");
  if (column.kind != ColumnKind::kImages || column.lengths.count == 0) return text;
  std::string formats;
  for (const auto& [format, count] : column.images.formats.of_texts())
    formats += (formats.empty() ? "" : ", ") + grouped_number(count) + " " + format;
  text += "\nImages in " + name + "\n  formats: " + formats + "\n";
  if (column.images.widths.count > 0)
    text += "  width: " + range(column.images.widths) + "\n  height: " + range(column.images.heights) + "\n";
  return text;
}

}  // namespace

std::string data_text(const DataSummary& summary) {
  std::string text = printable(summary.place) + ": " + summary.kind +
                     (summary.writer.empty() ? "" : ", written by " + printable(summary.writer)) + "\n";
  TextTable facts;
  for (const auto& [name, value] : data_facts(summary)) facts.push_back({name, value});
  text += aligned_table(facts);
  if (summary.is_sample()) text += "  " + sampling_text(summary) + "\n";
  text += columns_text(summary);
  if (const ColumnSummary* label = label_column(summary))
    text += label->values.is_exact() ? counts_text("Classes", counted_values(*label)) : "";
  for (const ColumnSummary& column : summary.columns) text += details_text(column);
  if (!summary.problems.empty()) text += "\nProblems\n";
  for (const std::string& problem : summary.problems) text += "  " + printable(problem) + "\n";
  return text;
}

}  // namespace lockstep::apps
