#include <arrow/array/array_nested.h>
#include <arrow/array/concatenate.h>
#include <arrow/array/util.h>
#include <arrow/chunked_array.h>
#include <arrow/io/interfaces.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <type_traits>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/parquet/internal/arrow_column.h"
#include "lockstep/datasets/parquet/internal/arrow_values.h"
#include "lockstep/datasets/parquet/internal/column_range.h"
#include "lockstep/datasets/parquet/internal/decoded_size.h"
#include "lockstep/datasets/parquet/internal/number_decoder.h"
#include "lockstep/datasets/parquet/internal/parquet_rows.h"
#include "lockstep/datasets/parquet/internal/range_reader.h"
#include "lockstep/datasets/parquet/internal/recycling_pool.h"
#include "lockstep/datasets/parquet/internal/row_gatherer.h"
#include "lockstep/datasets/stores/internal/arrow_source.h"
#include "lockstep/datasets/stores/internal/read_error.h"
#include "lockstep/datasets/stores/internal/watched_file.h"

namespace lockstep {

namespace {

/// Returns where the values of a column of a supported type are stored.
const parquet::arrow::SchemaField& leaf_of(const parquet::arrow::SchemaField& field) {
  return field.is_leaf() ? field : leaf_of(field.children.front());
}

bool is_struct(const parquet::arrow::SchemaField& field) {
  return field.field->type()->id() == arrow::Type::STRUCT;
}

class ArrowRows : public ParquetRows {
 public:
  explicit ArrowRows(const ParquetFileOptions& options)
      : source_(open_source(options.path, options.store_attempts, options.times)) {
    if (source_->size() == 0) throw DataError(path() + ": expected a Parquet file, but it is empty");
    properties_.set_page_checksum_verification(true);
    const auto reader = open();
    choose_columns(reader->manifest(), options.columns);
    choose_null_rules(options);
    int64_t total = 0;
    for (int i = 0; i < metadata_->num_row_groups(); ++i) {
      const auto rows = naming(path(), [&] { return metadata_->RowGroup(i)->num_rows(); });
      if (rows < 0 || __builtin_add_overflow(total, rows, &total))
        throw DataError(place_of(i), "rows", "0 or more", std::to_string(rows));
      rows_of_groups_.push_back(rows);
    }
  }

  const std::string& path() const override { return source_->name(); }
  const std::vector<ParquetColumn>& columns() const override { return columns_; }
  const std::vector<int64_t>& rows_of_groups() const override { return rows_of_groups_; }

  int64_t decoded_bytes(int row_group) const override {
    return naming(place_of(row_group), [&] {
      const auto group = metadata_->RowGroup(row_group);
      int64_t bytes = 0;
      for (size_t i = 0; i < columns_.size(); ++i)
        if (__builtin_add_overflow(
                bytes,
                lockstep::decoded_bytes(columns_[i], rows_of_groups_[static_cast<size_t>(row_group)],
                                        *group->ColumnChunk(leaves_[i]), element_levels_[i]),
                &bytes))
          throw DataError(place_of(row_group) + ": it says to hold more bytes than any memory");
      return bytes;
    });
  }

  std::optional<int64_t> num_values(int row_group, size_t column) const override {
    return naming(place_of(row_group), [&] {
      return lockstep::num_values(columns_[column], rows_of_groups_[static_cast<size_t>(row_group)],
                                  *metadata_->RowGroup(row_group)->ColumnChunk(leaves_[column]),
                                  element_levels_[column]);
    });
  }

  std::optional<ParquetRange> range_of(int row_group, const std::string& column) const override {
    const int leaf = metadata_->schema()->ColumnIndex(column);
    if (leaf < 0) throw DataError(path() + ": expected a column '" + column + "' of single values");
    return naming(place_of(row_group),
                  [&] { return column_range(*metadata_->RowGroup(row_group)->ColumnChunk(leaf)); });
  }

  std::string identity() const override {
    const std::string bytes = metadata_->SerializeToString();
    DataChecksum checksum;
    checksum.add(bytes.data(), bytes.size());
    return checksum.text();
  }

  std::vector<ParquetValues> read_row_group(int row_group, c10::ArrayRef<uint32_t> order) const override {
    const std::string place = place_of(row_group);
    const auto group = naming(place, [&] { return metadata_->RowGroup(row_group); });
    std::vector<size_t> numbers, others;  // of columns_
    for (size_t i = 0; i < columns_.size(); ++i) {
      const bool are_numbers = naming(place_of_column(row_group, i), [&] {
        return can_decode_numbers(columns_[i], descriptor_of(i), *group->ColumnChunk(leaves_[i]));
      });
      (are_numbers ? numbers : others).push_back(i);
    }
    std::vector<ParquetValues> values(columns_.size());
    const auto file = source_->open();  // once, as that is a request to a store
    telling_read_errors(*file, [&] {
      if (!numbers.empty()) {
        const auto unknown = read_numbers(file, *group, row_group, numbers, order, values);
        others.insert(others.end(), unknown.begin(), unknown.end());
      }
      if (!others.empty()) read_others(file, row_group, others, order, values);
    });
    return values;
  }

 private:
  using File = std::shared_ptr<arrow::io::RandomAccessFile>;

  std::string place_of_column(int row_group, size_t i) const {
    return place_of(row_group) + ": column '" + columns_[i].name + "'";
  }

  const parquet::ColumnDescriptor& descriptor_of(size_t i) const {
    return *metadata_->schema()->Column(leaves_[i]);
  }

  /// Reads the columns of these numbers, which can_decode_numbers() knows. Returns those whose pages turn out
  /// to have other encodings.
  std::vector<size_t> read_numbers(const File& file, const parquet::RowGroupMetaData& group, int row_group,
                                   const std::vector<size_t>& columns, c10::ArrayRef<uint32_t> order,
                                   std::vector<ParquetValues>& values) const {
    std::vector<ByteRange> ranges;
    for (const size_t i : columns) {
      ranges.push_back(naming(place_of_column(row_group, i), [&] {
        return range_of_chunk(*metadata_, *group.ColumnChunk(leaves_[i]), source_->size());
      }));
      const ByteRange& range = ranges.back();
      if (range.begin < 0 || range.size < 0 || range.begin > source_->size() - range.size)
        throw DataError(place_of_column(row_group, i) + ": expected bytes of the file, which has " +
                        std::to_string(source_->size()) + ", but got " + std::to_string(range.size) +
                        " bytes from " + std::to_string(range.begin));
    }
    RangeReader reader(file, ranges, source_->is_stored());
    NumberDecoder decoder(recycling_pool(), properties_);
    std::vector<size_t> unknown;
    for (size_t j = 0; j < columns.size(); ++j) {
      const size_t i = columns[j];
      const std::string of_column = place_of_column(row_group, i);
      NumberDecoder::Numbers decoded;
      try {
        decoded = naming(of_column, [&] {
          return decoder.decode(columns_[i], descriptor_of(i), *group.ColumnChunk(leaves_[i]),
                                value_or_throw(of_column, reader.read(j)),
                                {.rows = rows_of_groups_[static_cast<size_t>(row_group)],
                                 .fill = null_rules_[i].fill,
                                 .order = order,
                                 .is_always_compressed = is_always_compressed_});
        });
      } catch (const UnknownEncoding&) {
        unknown.push_back(i);
        continue;
      }
      if (decoded.nulls > 0 && !null_rules_[i].fill) throw_nulls(of_column, decoded.nulls);
      values[i].values = decoded.values;
    }
    return unknown;
  }

  void read_others(const File& file, int row_group, const std::vector<size_t>& columns,
                   c10::ArrayRef<uint32_t> order, std::vector<ParquetValues>& values) const {
    std::vector<int64_t> from, to;
    for (size_t row = 0; row < order.size(); ++row) {
      from.push_back(order[row]);
      to.push_back(static_cast<int64_t>(row));
    }
    const std::string place = place_of(row_group);
    const auto reader = reader_of(file, place);
    const auto read = [&](const std::string& of, const std::vector<int>& leaves) {
      return naming(of, [&] { return value_or_throw(of, reader->ReadRowGroup(row_group, leaves)); });
    };
    std::shared_ptr<arrow::Table> all;
    if (source_->is_stored()) {  // in as few requests as possible
      std::vector<int> leaves;
      for (const size_t i : columns) leaves.push_back(leaves_[i]);
      all = read(place, leaves);
    }
    for (const size_t i : columns) {
      const ParquetColumn& column = columns_[i];
      const std::string of_column = place_of_column(row_group, i);
      const auto table = all ? all : read(of_column, {leaves_[i]});
      const auto chunks = column_of(place, *table, fields_[i]);
      const int64_t expected = rows_of_groups_[static_cast<size_t>(row_group)];
      if (!chunks || chunks->length() != expected)
        throw DataError(place, "column '" + column.name + "'", std::to_string(expected) + " rows",
                        std::to_string(chunks ? chunks->length() : 0));
      values[i] = parquet_values(of_column, column, one_array(of_column, *chunks), null_rules_[i]);
      if (order.empty()) continue;
      RowGatherer gatherer(expected);
      gatherer.add({values[i]}, from, to);
      values[i] = gatherer.finish().front();
    }
  }

  std::string place_of(int row_group) const { return path() + ": row group " + std::to_string(row_group); }

  using Reader = std::unique_ptr<parquet::arrow::FileReader>;

  template <typename T>
  T value_or_throw(const std::string& place, arrow::Result<T> result) const {
    if (!result.ok()) throw DataError(place + ": " + source_->explained(result.status().message()));
    return std::move(result).ValueUnsafe();
  }

  /// Runs a function of Parquet's, some of which throw. `place` begins the message.
  template <typename Function>
  std::invoke_result_t<Function> naming(const std::string& place, Function function) const {
    try {
      return function();
    } catch (const UnknownEncoding&) {
      throw;
    } catch (const parquet::ParquetException& error) {
      throw DataError(place + ": " + source_->explained(error.what()));
    }
  }

  std::shared_ptr<arrow::Array> one_array(const std::string& place, const arrow::ChunkedArray& chunks) const {
    if (chunks.num_chunks() == 1) return chunks.chunk(0);
    if (chunks.num_chunks() == 0) return value_or_throw(place, arrow::MakeEmptyArray(chunks.type()));
    return value_or_throw(place, arrow::Concatenate(chunks.chunks()));
  }

  /// Returns the column of a field, null if there is none. A field of a struct is null if the struct is.
  std::shared_ptr<arrow::ChunkedArray> column_of(const std::string& place, const arrow::Table& table,
                                                 const std::vector<std::string>& field) const {
    auto chunks = table.GetColumnByName(field.front());
    for (size_t depth = 1; chunks && depth < field.size(); ++depth) {
      const int child = static_cast<const arrow::StructType&>(*chunks->type()).GetFieldIndex(field[depth]);
      if (child < 0) return nullptr;
      arrow::ArrayVector of_child;
      for (const auto& chunk : chunks->chunks())
        of_child.push_back(value_or_throw(
            place,
            static_cast<const arrow::StructArray&>(*chunk).GetFlattenedField(child, recycling_pool())));
      chunks =
          std::make_shared<arrow::ChunkedArray>(std::move(of_child), chunks->type()->field(child)->type());
    }
    return chunks;
  }

  /// Returns `function()`, which reads from the file: it fails in the same way if bytes are damaged and if
  /// they do not come.
  template <typename Function>
  static std::invoke_result_t<Function> telling_read_errors(const WatchedFile& file, Function function) {
    try {
      return function();
    } catch (const DataError& error) {
      if (file.has_failed()) throw ReadError(error.what());
      throw;
    }
  }

  Reader open() {
    const auto file = source_->open();
    Reader reader = telling_read_errors(*file, [&] { return reader_of(file, path()); });
    metadata_ = reader->parquet_reader()->metadata();
    is_always_compressed_ =
        metadata_->writer_version().VersionLt(parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION());
    return reader;
  }

  // Arrow's reader is for one thread; it costs little once the metadata is there.
  Reader reader_of(const File& file, const std::string& place) const {
    return naming(place, [&] {
      return value_or_throw(
          place, parquet::arrow::FileReader::Make(
                     recycling_pool(), parquet::ParquetFileReader::Open(file, properties_, metadata_)));
    });
  }

  void choose_columns(const parquet::arrow::SchemaManifest& manifest, std::vector<std::string> names) {
    if (names.empty())
      for (const auto& field : manifest.schema_fields) names.push_back(field.field->name());
    else if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
      throw std::invalid_argument("[ParquetFile] columns: expected different names, but got one twice");
    for (const std::string& name : names) add_column(manifest, name);
  }

  void choose_null_rules(const ParquetFileOptions& options) {
    for (const auto& own : options.column_null_fills)
      if (std::none_of(columns_.begin(), columns_.end(),
                       [&](const auto& column) { return column.name == own.first; }))
        throw std::invalid_argument(
            "[ParquetFile] column_null_fills: expected columns that are read, but got '" + own.first + "'");
    for (const auto& column : columns_) null_rules_.push_back(null_rule(options, column));
  }

  using Fields = std::vector<parquet::arrow::SchemaField>;

  /// Returns the field of a name, null if there is none. Throws if there are two.
  const parquet::arrow::SchemaField* find(const Fields& fields, const std::string& name) const {
    const parquet::arrow::SchemaField* found = nullptr;
    for (const auto& field : fields) {
      if (field.field->name() != name) continue;
      if (found) throw DataError(path(), "columns", "one named '" + name + "'", "two");
      found = &field;
    }
    return found;
  }

  /// Finds a column, or a field of a struct such as image.bytes, and completes `names`, the names on the way
  /// to it. A struct of bytes and a path stands for its bytes.
  const parquet::arrow::SchemaField* find_nested(const Fields& fields, const std::string& name,
                                                 std::vector<std::string>& names) const {
    const parquet::arrow::SchemaField* found = find(fields, name);
    const size_t dot = name.find('.');
    if (found) {
      names.push_back(name);
      if (!is_struct(*found) || found->children.size() != 2 || !find(found->children, "path")) return found;
      const auto* bytes = find(found->children, "bytes");
      if (!bytes) return found;
      names.emplace_back("bytes");
      return bytes;
    }
    if (dot == std::string::npos) return nullptr;
    const parquet::arrow::SchemaField* outer = find(fields, name.substr(0, dot));
    if (!outer || !is_struct(*outer)) return nullptr;
    names.push_back(name.substr(0, dot));
    return find_nested(outer->children, name.substr(dot + 1), names);
  }

  void add_column(const parquet::arrow::SchemaManifest& manifest, const std::string& name) {
    std::vector<std::string> names;
    const parquet::arrow::SchemaField* found = find_nested(manifest.schema_fields, name, names);
    if (!found) {
      std::string all;
      for (const auto& field : manifest.schema_fields) all += (all.empty() ? "" : ", ") + field.field->name();
      throw DataError(path(), "columns", "one named '" + name + "'", all);
    }
    columns_.push_back(parquet_column(path(), *found->field->WithName(name)));
    fields_.push_back(std::move(names));
    const auto& leaf = leaf_of(*found);
    leaves_.push_back(leaf.column_index);
    element_levels_.push_back(leaf.level_info.repeated_ancestor_def_level);
  }

  std::unique_ptr<const ArrowSource> source_;
  parquet::ReaderProperties properties_{recycling_pool()};
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<ParquetColumn> columns_;
  std::vector<std::vector<std::string>> fields_;  // of each of columns_: its name, within those of structs
  std::vector<NullRule> null_rules_;              // of each of columns_
  std::vector<int> leaves_;                       // the Parquet column of each of columns_
  std::vector<int> element_levels_;               // of each of columns_, as decoded_bytes() takes it
  std::vector<int64_t> rows_of_groups_;
  bool is_always_compressed_ = false;  // see NumberDecoder::Options
};

}  // namespace

std::shared_ptr<const ParquetRows> open_parquet(const ParquetFileOptions& options) {
  return std::make_shared<const ArrowRows>(options);
}

}  // namespace lockstep
