#include <algorithm>

#include "lockstep/apps/inspect_data/data_text.h"
#include "lockstep/apps/inspect_data/histogram_figure.h"
#include "lockstep/apps/inspect_data/value_texts.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/training/reporting/html/internal/bar_plot.h"
#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/html/internal/html_text.h"

namespace lockstep::apps {
namespace {

constexpr size_t kMostClassBars = 25;
constexpr size_t kMostSizeBars = 8;
constexpr size_t kLongestName = 32;

using Counts = std::vector<std::pair<std::string, int64_t>>;

std::string bars_figure(const std::string& title, Counts counts, const std::string& value_label,
                        size_t most) {
  const size_t all = counts.size();
  if (all > most) {
    std::stable_sort(counts.begin(), counts.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    counts.resize(most);
  }
  BarPlot plot{.title = all > most ? title + ": the " + std::to_string(most) + " most frequent of " +
                                         grouped_number(static_cast<int64_t>(all))
                                   : title,
               .value_label = value_label};
  for (const auto& [value, count] : counts)
    plot.bars.push_back({.name = value.empty() ? "(empty)" : value, .value = static_cast<double>(count)});
  return bar_plot_figure(plot);
}

Counts sorted_counts(const ValueCounts& values) {
  Counts counts;
  for (const auto& [text, count] : values.of_texts()) counts.emplace_back(printable(text), count);
  std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return counts;
}

void add_classes(const DataSummary& summary, HtmlPage& page) {
  const ColumnSummary* label = label_column(summary);
  if (label == nullptr || !label->values.is_exact() || label->num_rows == label->num_nulls) return;
  const Counts counts = counted_values(*label);
  if (counts.empty()) return;
  page.heading("Classes");
  const std::string noun = summary.kind == "images" ? "images" : "rows";
  const auto [least, most] = std::minmax_element(
      counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string sizes =
      least->second == most->second
          ? grouped_number(most->second) + " " + noun + " each"
          : grouped_number(least->second) + " to " + grouped_number(most->second) + " " + noun;
  page.paragraph("Column label: " + grouped_number(static_cast<int64_t>(counts.size())) +
                 (counts.size() == 1 ? " class of " : " classes of ") + sizes + ".");
  page.figures({bars_figure(capitalized(noun) + " of each class", counts, noun, kMostClassBars)});
}

void add_columns(const DataSummary& summary, HtmlPage& page) {
  const bool has_bytes = summary.kind == "Parquet";
  HtmlTable table{.columns = {{"column"}, {"type"}}, .rows = {}};
  if (has_bytes)
    for (const char* name : {"stored", "uncompressed"}) table.columns.push_back({name, true});
  const bool has_compression = has_bytes && compression_of_all(summary).empty();
  if (has_compression) table.columns.push_back({"compression"});
  for (const char* name : {"nulls", "distinct", "least", "mean", "most"})
    table.columns.push_back({name, true});
  for (const ColumnSummary& column : summary.columns) {
    std::vector<std::string> row{shortened_in_the_middle(printable(column.name), kLongestName),
                                 shortened_in_the_middle(type_text(column), kLongestName)};
    if (has_bytes) {
      row.push_back(bytes_text(static_cast<uint64_t>(column.stored_bytes)));
      row.push_back(bytes_text(static_cast<uint64_t>(column.uncompressed_bytes)));
    }
    if (has_compression) row.push_back(column.compression);
    row.push_back(column.kind == ColumnKind::kOther ? "not read" : grouped_number(column.num_nulls));
    for (const auto& text : {distinct_text(column), least_text(column), mean_text(column), most_text(column)})
      row.push_back(text);
    table.rows.push_back(std::move(row));
  }
  page.heading("Columns");
  const bool has_estimates =
      std::any_of(summary.columns.begin(), summary.columns.end(),
                  [](const ColumnSummary& column) { return !column.values.is_exact(); });
  if (has_estimates)
    page.paragraph(
        "Numbers of distinct values that begin with “about” are estimates with a standard error of 0.8 % "
        "(HyperLogLog).");
  page.elements(html_table(table));
}

void add_histograms(const DataSummary& summary, HtmlPage& page) {
  std::vector<std::string> figures;
  const auto add = [&](const std::string& title, const std::string& label, const NumberSummary& numbers,
                       bool is_whole) {
    const std::string odd = odd_numbers_text(numbers);
    if (numbers.count > 0)
      figures.push_back(histogram_figure({.title = odd.empty() ? title : title + " (without " + odd + ")",
                                          .value_label = label,
                                          .numbers = &numbers,
                                          .is_whole = is_whole}));
  };
  for (const ColumnSummary& column : summary.columns) {
    // Classes have a figure of their own.
    if (&column == label_column(summary) && column.values.is_exact()) continue;
    const std::string name = shortened_in_the_middle(printable(column.name), kLongestName);
    add(column.has_lists ? name + ", elements" : name, column.unit, column.numbers,
        column.kind == ColumnKind::kIntegers);
    add(name + (column.has_lists ? ", lengths" : ", sizes"), column.has_lists ? "elements" : "bytes",
        column.lengths, true);
    add(name + ", widths", "pixels", column.images.widths, true);
    add(name + ", heights", "pixels", column.images.heights, true);
    if (column.kind != ColumnKind::kImages) continue;
    const Counts formats = sorted_counts(column.images.formats);
    if (formats.size() > 1)
      figures.push_back(bars_figure(name + ", formats", formats, "images", kMostSizeBars));
    const Counts sizes = sorted_counts(column.images.sizes);
    if (sizes.size() > 1)
      figures.push_back(bars_figure(name + ", width x height", sizes, "images", kMostSizeBars));
  }
  if (figures.empty()) return;
  page.heading("Histograms");
  page.figures(figures);
}

}  // namespace

std::string data_html(const DataSummary& summary) {
  HtmlPage page("Data in " + printable(summary.place));
  page.line(capitalized(summary.kind) +
            (summary.writer.empty() ? "" : ", written by " + printable(summary.writer)));
  if (summary.is_sample()) page.line(sampling_text(summary));
  page.key_figures(data_facts(summary));
  add_classes(summary, page);
  add_columns(summary, page);
  add_histograms(summary, page);
  if (!summary.problems.empty()) page.heading("Problems");
  for (const std::string& problem : summary.problems) page.paragraph(printable(problem));
  return page.html();
}

}  // namespace lockstep::apps
