#include <arrow/array.h>
#include <arrow/io/interfaces.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "lockstep/datasets/files/internal/cache_file.h"
#include "lockstep/datasets/parquet/internal/arrow_array.h"
#include "lockstep/datasets/parquet/internal/parquet_row_writer.h"
#include "lockstep/datasets/parquet/internal/row_gatherer.h"

namespace lockstep {

namespace {

/// Errors of the file are kept, as Arrow's own have no type.
class NewFileStream final : public arrow::io::OutputStream {
 public:
  explicit NewFileStream(NewFile& file) : file_(file) {}

  arrow::Status Write(const void* data, int64_t bytes) override {
    try {
      file_.append({static_cast<const char*>(data), static_cast<size_t>(bytes)});
    } catch (...) {
      error_ = std::current_exception();
      return arrow::Status::IOError("the file cannot be written");
    }
    return arrow::Status::OK();
  }
  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return static_cast<int64_t>(file_.size()); }
  bool closed() const override { return is_closed_; }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  NewFile& file_;
  bool is_closed_ = false;
  std::exception_ptr error_;
};

arrow::Compression::type compression_of(const ParquetWriterOptions& options) {
  using arrow::Compression;
  static const std::map<std::string, Compression::type> kTypes{{"none", Compression::UNCOMPRESSED},
                                                               {"snappy", Compression::SNAPPY},
                                                               {"gzip", Compression::GZIP},
                                                               {"lz4", Compression::LZ4},
                                                               {"zstd", Compression::ZSTD}};
  const auto found = kTypes.find(options.compression);
  if (found == kTypes.end() || !arrow::util::Codec::IsAvailable(found->second))
    throw std::invalid_argument(
        "[ParquetWriter] compression: expected none, snappy, gzip, lz4 or zstd, as far as this Arrow has "
        "them, "
        "but got '" +
        options.compression + "'");
  return found->second;
}

bool is_text(const ParquetWriterOptions& options, const ParquetColumn& column) {
  const auto& names = options.text_columns;
  return std::find(names.begin(), names.end(), column.name) != names.end();
}

/// Returns binaries as strings, which share their memory.
std::shared_ptr<arrow::Array> as_text(const ParquetColumn& column, const arrow::Array& binaries) {
  auto text = binaries.View(arrow::large_utf8());
  arrow::Status status = text.status();
  if (status.ok()) status = static_cast<const arrow::LargeStringArray&>(**text).ValidateUTF8();
  if (!status.ok())
    throw std::invalid_argument("[ParquetWriter] column '" + column.name + "': expected UTF-8, but got " +
                                "other bytes");
  return *text;
}

class ArrowRowWriter final : public ParquetRowWriter {
 public:
  explicit ArrowRowWriter(const ParquetWriterOptions& options)
      : options_(options),
        schema_(checked_schema(options)),
        file_(options.path, /*is_sole=*/false),
        stream_(std::make_shared<NewFileStream>(file_)) {
    const auto properties = parquet::WriterProperties::Builder()
                                .compression(compression_of(options))
                                ->enable_page_checksum()
                                ->max_row_group_length(options.rows_per_group)
                                ->build();
    const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    auto made = parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(), stream_, properties,
                                                 arrow_properties);
    check(made.status());
    writer_ = std::move(made).ValueUnsafe();
  }

  void append(const std::vector<ParquetValues>& columns) override {
    if (is_closed_) throw std::logic_error("[ParquetWriter] " + options_.path + " is closed");
    const int64_t count = checked_rows(columns);
    size_t num_copied = waiting_.size();
    for (int64_t begin = 0; begin < count;) {
      const int64_t end = std::min(count, begin + options_.rows_per_group - num_waiting_);
      std::vector<ParquetValues> part;
      for (const ParquetValues& column : columns) part.push_back(slice_rows(column, begin, end));
      waiting_.push_back(std::move(part));
      num_waiting_ += end - begin;
      begin = end;
      if (num_waiting_ < options_.rows_per_group) continue;
      write_group();
      num_copied = 0;
    }
    // The caller may write into its tensors again.
    for (; num_copied < waiting_.size(); ++num_copied)
      for (ParquetValues& column : waiting_[num_copied]) column.values = column.values.clone();
  }

  void close() override {
    if (is_closed_) return;
    if (num_waiting_ > 0) write_group();
    check(writer_->Close());
    file_.commit();
    is_closed_ = true;
  }

 private:
  static std::shared_ptr<arrow::Schema> checked_schema(const ParquetWriterOptions& options) {
    if (options.rows_per_group < 1)
      throw std::invalid_argument("[ParquetWriter] rows_per_group: expected 1 or more, but got " +
                                  std::to_string(options.rows_per_group));
    if (options.columns.empty()) throw std::invalid_argument("[ParquetWriter] columns: expected one or more");
    arrow::FieldVector fields;
    for (const ParquetColumn& column : options.columns) {
      const bool has_text = is_text(options, column);
      if (has_text && column.shape != ParquetShape::kBytes)
        throw std::invalid_argument("[ParquetWriter] text_columns: expected columns of bytes, but '" +
                                    column.name + "' is none");
      fields.push_back(arrow::field(column.name, has_text ? arrow::large_utf8() : arrow_type(column)));
    }
    return arrow::schema(fields);
  }

  void check(const arrow::Status& status) const {
    stream_->rethrow();
    if (!status.ok()) throw std::runtime_error(options_.path + ": " + status.message());
  }

  int64_t checked_rows(const std::vector<ParquetValues>& columns) const {
    if (columns.size() != options_.columns.size())
      throw std::invalid_argument("[ParquetWriter] expected the values of " +
                                  std::to_string(options_.columns.size()) + " columns, but got those of " +
                                  std::to_string(columns.size()));
    for (size_t i = 0; i < columns.size(); ++i) {
      check_values(options_.columns[i], columns[i]);
      if (const int64_t rows = num_rows(columns[i]); rows != num_rows(columns[0]))
        throw std::invalid_argument("[ParquetWriter] column '" + options_.columns[i].name + "': expected " +
                                    std::to_string(num_rows(columns[0])) + " rows, but got " +
                                    std::to_string(rows));
    }
    return num_rows(columns[0]);
  }

  void write_group() {
    arrow::ArrayVector arrays;
    for (size_t i = 0; i < options_.columns.size(); ++i) {
      std::vector<ParquetValues> parts;
      for (const auto& part : waiting_) parts.push_back(part[i]);
      const ParquetColumn& column = options_.columns[i];
      auto array = arrow_array(column, cat_rows(parts), options_.null_value);
      arrays.push_back(is_text(options_, column) ? as_text(column, *array) : std::move(array));
    }
    check(writer_->WriteTable(*arrow::Table::Make(schema_, arrays, num_waiting_), num_waiting_));
    waiting_.clear();
    num_waiting_ = 0;
  }

  ParquetWriterOptions options_;
  std::shared_ptr<arrow::Schema> schema_;
  NewFile file_;
  std::shared_ptr<NewFileStream> stream_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
  std::vector<std::vector<ParquetValues>> waiting_;  // rows of the next row group
  int64_t num_waiting_ = 0;
  bool is_closed_ = false;
};

}  // namespace

std::unique_ptr<ParquetRowWriter> write_parquet(const ParquetWriterOptions& options) {
  return std::make_unique<ArrowRowWriter>(options);
}

}  // namespace lockstep
