#include <algorithm>
#include <memory>

#include "lockstep/apps/inspect_data/inspected_data.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/internal/parquet_profile.h"

namespace lockstep::apps {
namespace {

ColumnKind kind_of(const ParquetColumnFacts& facts) {
  if (!facts.read_as) return ColumnKind::kOther;
  const ParquetColumn& column = *facts.read_as;
  const bool is_binary = facts.type.find("binary") != std::string::npos;
  if (column.shape == ParquetShape::kBytes || facts.type.starts_with("fixed_size_binary")) {
    if (!is_binary) return ColumnKind::kTexts;
    return facts.name == "image" ? ColumnKind::kImages : ColumnKind::kBinaries;
  }
  return at::isFloatingType(column.type) ? ColumnKind::kFloats : ColumnKind::kIntegers;
}

ColumnSummary empty_summary(const ParquetColumnFacts& facts) {
  ColumnSummary column{.name = facts.name, .type = facts.type, .kind = kind_of(facts)};
  column.compression = facts.compression;
  if (facts.read_as) {
    column.unit = facts.read_as->unit;
    column.has_lists =
        column.kind != ColumnKind::kBinaries &&
        (facts.read_as->shape == ParquetShape::kList || facts.read_as->shape == ParquetShape::kFixedList);
  }
  column.numbers = NumberSummary(column.kind == ColumnKind::kIntegers);
  return column;
}

bool is_valid(const at::Tensor& valid, int64_t i) {
  return !valid.defined() || valid.const_data_ptr<bool>()[i];
}

int64_t count_nulls(const at::Tensor& valid) {
  if (!valid.defined()) return 0;
  const auto* begin = valid.const_data_ptr<bool>();
  return std::count(begin, begin + valid.numel(), false);
}

/// Returns the bytes or elements of a row.
int64_t length_of(const ParquetValues& values, int64_t row) {
  if (!values.offsets.defined()) return values.values.size(1);
  const auto* offsets = values.offsets.const_data_ptr<int64_t>();
  return offsets[row + 1] - offsets[row];
}

int64_t begin_of(const ParquetValues& values, int64_t row) {
  return values.offsets.defined() ? values.offsets.const_data_ptr<int64_t>()[row]
                                  : row * values.values.size(1);
}

template <typename Number>
std::vector<Number> valid_numbers(const at::Tensor& values, const at::Tensor& valid) {
  constexpr auto kType = c10::CppTypeToScalarType<Number>::value;
  const at::Tensor numbers = values.reshape({-1}).to(kType).contiguous();
  const auto* from = numbers.const_data_ptr<Number>();
  std::vector<Number> found;
  found.reserve(static_cast<size_t>(numbers.numel()));
  for (int64_t i = 0; i < numbers.numel(); ++i)
    if (is_valid(valid, i)) found.push_back(from[i]);
  return found;
}

/// Adds the values of a row group.
void add_values(const ProfiledValues& read, int64_t rows, ColumnSummary& column) {
  const ParquetValues& values = read.values;
  column.num_rows += rows;
  column.num_nulls += count_nulls(read.valid);
  column.decoded_bytes += static_cast<int64_t>(values.values.nbytes());
  if (values.offsets.defined()) column.decoded_bytes += static_cast<int64_t>(values.offsets.nbytes());
  if (column.kind == ColumnKind::kIntegers || column.kind == ColumnKind::kFloats) {
    if (column.has_lists) {
      column.num_null_elements += count_nulls(read.elements);
      std::vector<double> lengths;
      for (int64_t row = 0; row < rows; ++row)
        if (is_valid(read.valid, row)) lengths.push_back(static_cast<double>(length_of(values, row)));
      column.lengths.add(lengths);
    }
    const at::Tensor& valid = column.has_lists ? read.elements : read.valid;
    if (column.kind == ColumnKind::kIntegers) {
      column.add_integers(valid_numbers<int64_t>(values.values, valid));
    } else {
      column.add_floats(valid_numbers<double>(values.values, valid));
    }
    return;
  }
  const auto* bytes = reinterpret_cast<const char*>(values.values.const_data_ptr<uint8_t>());
  std::vector<std::string_view> texts;
  for (int64_t row = 0; row < rows; ++row)
    if (is_valid(read.valid, row))
      texts.emplace_back(bytes + begin_of(values, row), static_cast<size_t>(length_of(values, row)));
  column.add_bytes(texts);
}

/// The columns of all files by name, which need not be the same.
class ParquetReading final : public ConversionStream {
 public:
  struct Part {
    std::string path;
    int row_group = 0;
    int64_t rows = 0;
  };

  ParquetReading(std::vector<Part> parts, DataSummary& summary, ConversionProgress& progress)
      : parts_(std::move(parts)), summary_(summary), progress_(progress) {}

  Convert next() override {
    if (next_ == parts_.size()) return {};
    const Part& part = parts_[next_++];
    // Only the files that are read now are open.
    if (file_ == nullptr || path_ != part.path) file_ = open_profile(part.path);
    path_ = part.path;
    const auto& rows = file_->rows_of_groups();
    const auto group = static_cast<size_t>(part.row_group);
    if (group >= rows.size() || rows[group] != part.rows)
      throw DataError(file_->path() + ": the file has changed since it was opened");
    return
        [this, file = file_, group = part.row_group, count = part.rows] { return read(*file, group, count); };
  }
  void finish() override {}

 private:
  Write read(const ParquetProfile& file, int row_group, int64_t rows) {
    auto columns = std::make_shared<std::vector<ColumnSummary>>();
    for (size_t i = 0; i < file.columns().size(); ++i) {
      columns->push_back(empty_summary(file.columns()[i]));
      if (columns->back().kind != ColumnKind::kOther)
        add_values(file.read(row_group, i), rows, columns->back());
    }
    return [this, columns, rows] {
      for (const ColumnSummary& read : *columns)
        for (ColumnSummary& column : summary_.columns)
          if (column.name == read.name) column.merge(read);
      summary_.rows_read += rows;
      progress_.rows += rows;
      progress_.done += rows;
    };
  }

  std::vector<Part> parts_;
  DataSummary& summary_;
  ConversionProgress& progress_;
  size_t next_ = 0;
  std::string path_;
  std::shared_ptr<const ParquetProfile> file_;  // with this path
};

/// Adds what a file's metadata says.
void add_facts(const ParquetProfile& file, DataSummary& summary) {
  summary.files.push_back(file.path());
  summary.stored_bytes += file.bytes();
  if (summary.writer.empty()) summary.writer = file.writer();
  for (const int64_t rows : file.rows_of_groups()) {
    summary.num_rows = summary.num_rows.value_or(0) + rows;
    const bool is_first = summary.num_row_groups++ == 0;
    summary.least_group_rows = is_first ? rows : std::min(summary.least_group_rows, rows);
    summary.most_group_rows = std::max(summary.most_group_rows, rows);
  }
  const bool is_first_file = summary.files.size() == 1;
  for (const ParquetColumnFacts& facts : file.columns()) {
    auto found = std::find_if(summary.columns.begin(), summary.columns.end(),
                              [&](const ColumnSummary& column) { return column.name == facts.name; });
    if (found == summary.columns.end()) {
      if (!is_first_file)
        summary.problems.push_back(file.path() + ": column '" + facts.name + "' is not in " +
                                   summary.files.front());
      found = summary.columns.insert(summary.columns.end(), empty_summary(facts));
    } else if (found->type != facts.type) {
      throw DataError(file.path(), "column '" + facts.name + "'",
                      found->type + " as in " + summary.files.front(), facts.type);
    }
    found->stored_bytes += facts.stored_bytes;
    found->uncompressed_bytes += facts.uncompressed_bytes;
    if (found->compression.find(facts.compression) == std::string::npos)
      found->compression += (found->compression.empty() ? "" : ", ") + facts.compression;
  }
  for (const ColumnSummary& column : summary.columns) {
    const auto& facts = file.columns();
    if (std::none_of(facts.begin(), facts.end(),
                     [&](const ParquetColumnFacts& fact) { return fact.name == column.name; }))
      summary.problems.push_back(file.path() + ": column '" + column.name + "' is missing");
  }
}

}  // namespace

DataReading open_parquet_reading(const InspectedData& data, ConversionProgress& progress) {
  DataReading reading{.summary = std::make_unique<DataSummary>()};
  DataSummary& summary = *reading.summary;
  summary.place = data.place;
  summary.kind = "Parquet";
  summary.num_rows = 0;
  std::vector<ParquetReading::Part> all;
  std::vector<int64_t> rows;
  for (const std::string& path : find_parquet_files(data.paths)) {
    const auto file = open_profile(path);
    add_facts(*file, summary);
    for (size_t i = 0; i < file->rows_of_groups().size(); ++i) {
      all.push_back({.path = path, .row_group = static_cast<int>(i), .rows = file->rows_of_groups()[i]});
      rows.push_back(file->rows_of_groups()[i]);
    }
  }
  std::vector<ParquetReading::Part> parts;
  for (const size_t part : sampled_parts(rows, data.num_rows)) {
    parts.push_back(all[part]);
    reading.total += rows[part];
  }
  if (parts.size() < all.size())
    summary.sampling =
        std::to_string(parts.size()) + " of " + std::to_string(all.size()) + " row groups, evenly spread";
  reading.streams.push_back(std::make_unique<ParquetReading>(std::move(parts), summary, progress));
  return reading;
}

}  // namespace lockstep::apps
