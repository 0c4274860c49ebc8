#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/apps/convert_data/click_conversion.h"
#include "lockstep/apps/convert_data/click_lines.h"
#include "lockstep/apps/inspect_data/inspected_data.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/byte_source.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kLinesAtOnce = 16'384;

std::vector<ColumnSummary> click_column_summaries() {
  std::vector<ColumnSummary> columns;
  const auto add = [&](const std::string& name, const std::string& type) {
    ColumnSummary column{.name = name, .type = type, .kind = ColumnKind::kIntegers};
    column.numbers = NumberSummary(true);
    columns.push_back(std::move(column));
  };
  add("label", "0 or 1");
  for (int i = 1; i <= kClickNumbers; ++i) add("I" + std::to_string(i), "integer");
  for (int i = 1; i <= kClickCategories; ++i) add("C" + std::to_string(i), "8 hexadecimal digits");
  return columns;
}

/// Adds one field of all rows.
template <typename Field>
void add_field(const std::vector<ClickRow>& rows, const Field& field, ColumnSummary& column) {
  std::vector<int64_t> numbers;
  numbers.reserve(rows.size());
  for (const ClickRow& row : rows)
    if (const auto value = field(row)) numbers.push_back(int64_t{*value});
  column.num_rows += static_cast<int64_t>(rows.size());
  column.num_nulls += static_cast<int64_t>(rows.size() - numbers.size());
  column.decoded_bytes += static_cast<int64_t>(rows.size() * sizeof(int64_t));
  column.add_integers(numbers);
}

class ClickReading final : public ConversionStream {
 public:
  ClickReading(const InspectedData& data, DataSummary& summary, ConversionProgress& progress)
      : data_(data), summary_(summary), progress_(progress) {}

  Convert next() override {
    while (file_ < summary_.files.size()) {
      const int64_t room = data_.num_rows > 0 ? data_.num_rows - num_lines_ : kLinesAtOnce;
      const std::string& file = summary_.files[file_];
      if (reader_ == nullptr) reader_ = std::make_unique<LineReader>(file);
      auto block = std::make_shared<const LineBlock>(reader_->next(std::min(room, kLinesAtOnce)));
      num_lines_ += block->num_lines;
      if (block->num_lines > 0) return [this, &file, block] { return read(file, *block); };
      if (room == 0) {
        if (reader_->next(1).num_lines == 0 && file_ + 1 == summary_.files.size()) return {};
        is_cut_short_ = true;
        return {};
      }
      reader_.reset();
      ++file_;
    }
    return {};
  }

  void finish() override {
    if (is_cut_short_) {
      summary_.sampling = "the first rows";
      summary_.num_rows.reset();
    }
    if (summary_.rows_read == 0)
      throw DataError(summary_.files.front() + ": expected rows of click logs, but it has none");
  }

 private:
  Write read(const std::string& file, const LineBlock& block) {
    const ParsedLines parsed = parse_click_lines(file, block, data_.skips_bad);
    auto columns = std::make_shared<std::vector<ColumnSummary>>(click_column_summaries());
    add_field(
        parsed.rows, [](const ClickRow& row) { return std::optional(row.is_click ? 1 : 0); },
        columns->front());
    for (size_t i = 0; i < kClickNumbers; ++i)
      add_field(
          parsed.rows, [i](const ClickRow& row) { return row.numbers[i]; }, (*columns)[1 + i]);
    for (size_t i = 0; i < kClickCategories; ++i)
      add_field(
          parsed.rows, [i](const ClickRow& row) { return row.categories[i]; },
          (*columns)[1 + kClickNumbers + i]);
    ClickNotes notes{.num_malformed = parsed.num_malformed};
    if (parsed.num_malformed > 0) notes.first_malformed = file + ": " + parsed.first_malformed;
    return [this, columns, notes, rows = static_cast<int64_t>(parsed.rows.size()),
            bytes = static_cast<int64_t>(block.text.size())] { merge(*columns, notes, rows, bytes); };
  }

  void merge(const std::vector<ColumnSummary>& columns, const ClickNotes& notes, int64_t rows,
             int64_t bytes) {
    for (size_t i = 0; i < columns.size(); ++i) summary_.columns[i].merge(columns[i]);
    if (notes.num_malformed > 0 && summary_.num_malformed == 0)
      summary_.problems.push_back("malformed rows were left out; the first: " + notes.first_malformed);
    summary_.num_malformed += notes.num_malformed;
    summary_.rows_read += rows;
    summary_.num_rows = summary_.rows_read;
    progress_.rows += rows;
    progress_.done += bytes;
  }

  InspectedData data_;
  DataSummary& summary_;
  ConversionProgress& progress_;
  size_t file_ = 0;
  std::unique_ptr<LineReader> reader_;
  int64_t num_lines_ = 0;
  bool is_cut_short_ = false;
};

}  // namespace

DataReading open_click_reading(const InspectedData& data, ConversionProgress& progress) {
  DataReading reading{.summary = std::make_unique<DataSummary>(), .unit = "bytes"};
  DataSummary& summary = *reading.summary;
  summary.place = data.place;
  summary.kind = "click logs";
  summary.files = find_click_files(data.paths);
  summary.columns = click_column_summaries();
  bool is_compressed = false;
  for (const std::string& file : summary.files) {
    is_compressed = is_compressed || compression_of(file) != Compression::kNone;
    summary.stored_bytes += bytes_of_file(file);
  }
  if (!is_compressed && data.num_rows == 0) reading.total = summary.stored_bytes;
  reading.streams.push_back(std::make_unique<ClickReading>(data, summary, progress));
  return reading;
}

}  // namespace lockstep::apps
