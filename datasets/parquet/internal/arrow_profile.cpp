#include <ATen/ops/empty.h>
#include <arrow/array.h>
#include <arrow/array/concatenate.h>
#include <arrow/array/util.h>
#include <arrow/chunked_array.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <set>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/arrow_column.h"
#include "lockstep/datasets/parquet/internal/arrow_values.h"
#include "lockstep/datasets/parquet/internal/parquet_profile.h"
#include "lockstep/datasets/parquet/internal/recycling_pool.h"
#include "lockstep/datasets/stores/internal/arrow_source.h"

namespace lockstep {

namespace {

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

/// Returns which elements are no nulls; undefined if all are.
at::Tensor valid_elements(const arrow::Array& array) {
  if (array.null_count() == 0) return {};
  at::Tensor valid = at::empty({array.length()}, at::kBool);
  bool* to = valid.mutable_data_ptr<bool>();
  for (int64_t i = 0; i < array.length(); ++i) to[i] = array.IsValid(i);
  return valid;
}

template <typename List>
at::Tensor valid_in_lists(const arrow::Array& array) {
  const auto& list = static_cast<const List&>(array);
  const int64_t begin = list.value_offset(0);
  return valid_elements(*list.values()->Slice(begin, list.value_offset(list.length()) - begin));
}

/// The same for the elements of lists.
at::Tensor valid_in_rows(const arrow::Array& array) {
  if (array.length() == 0) return {};
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return valid_in_lists<arrow::ListArray>(array);
    case arrow::Type::LARGE_LIST:
      return valid_in_lists<arrow::LargeListArray>(array);
    case arrow::Type::FIXED_SIZE_LIST:
      return valid_in_lists<arrow::FixedSizeListArray>(array);
    default:
      return {};
  }
}

class ArrowProfile final : public ParquetProfile {
 public:
  ArrowProfile(const std::string& path, int store_attempts) : source_(open_source(path, store_attempts)) {
    if (source_->size() == 0) throw DataError(this->path() + ": expected a Parquet file, but it is empty");
    properties_.set_page_checksum_verification(true);
    const auto reader = open(this->path());
    metadata_ = reader->parquet_reader()->metadata();
    writer_ = metadata_->created_by();
    naming(this->path(), [&] {
      for (const auto& field : reader->manifest().schema_fields) add_column(field);
      for (int i = 0; i < metadata_->num_row_groups(); ++i)
        rows_of_groups_.push_back(metadata_->RowGroup(i)->num_rows());
      return 0;
    });
  }

  const std::string& path() const override { return source_->name(); }
  int64_t bytes() const override { return source_->size(); }
  const std::string& writer() const override { return writer_; }
  const std::vector<ParquetColumnFacts>& columns() const override { return columns_; }
  const std::vector<int64_t>& rows_of_groups() const override { return rows_of_groups_; }

  ProfiledValues read(int row_group, size_t column) const override {
    const ParquetColumnFacts& facts = columns_.at(column);
    const std::string group = path() + ": row group " + std::to_string(row_group);
    const std::string place = group + ": column '" + facts.name + "'";
    const auto reader = open(group);
    const auto table = naming(
        group, [&] { return value_or_throw(group, reader->ReadRowGroup(row_group, leaves_[column])); });
    const auto chunks = table->GetColumnByName(facts.name);
    const int64_t expected = rows_of_groups_.at(static_cast<size_t>(row_group));
    if (!chunks || chunks->length() != expected)
      throw DataError(place, "rows", std::to_string(expected), std::to_string(chunks ? chunks->length() : 0));
    const auto array =
        value_or_throw(place, chunks->num_chunks() == 0 ? arrow::MakeEmptyArray(chunks->type())
                                                        : arrow::Concatenate(chunks->chunks()));
    return {.values = parquet_values(place, *facts.read_as, array, {.fill = 0, .lists_are_empty = true}),
            .valid = valid_elements(*array),
            .elements = valid_in_rows(*array)};
  }

 private:
  template <typename T>
  T value_or_throw(const std::string& place, arrow::Result<T> result) const {
    if (!result.ok()) throw DataError(place + ": " + source_->explained(result.status().message()));
    return std::move(result).ValueUnsafe();
  }

  /// Runs a function of Parquet's, some of which throw. `place` begins the message.
  template <typename Function>
  auto naming(const std::string& place, Function function) const -> decltype(function()) {
    try {
      return function();
    } catch (const parquet::ParquetException& error) {
      throw DataError(place + ": " + source_->explained(error.what()));
    }
  }

  // Arrow's reader is for one thread; it costs little once the metadata is there.
  std::unique_ptr<parquet::arrow::FileReader> open(const std::string& place) const {
    return naming(place, [&] {
      return value_or_throw(place, parquet::arrow::FileReader::Make(
                                       recycling_pool(), parquet::ParquetFileReader::Open(
                                                             source_->open(), properties_, metadata_)));
    });
  }

  void add_column(const parquet::arrow::SchemaField& field) {
    ParquetColumnFacts facts{.name = field.field->name(), .type = field.field->type()->ToString()};
    try {
      facts.read_as = parquet_column(path(), *field.field);
    } catch (const DataError&) {
      // It is described by its metadata alone.
    }
    leaves_.emplace_back();
    add_leaves(field, leaves_.back());
    std::set<std::string> compressions;
    for (int i = 0; i < metadata_->num_row_groups(); ++i) {
      const auto group = metadata_->RowGroup(i);
      for (const int leaf : leaves_.back()) {
        const auto chunk = group->ColumnChunk(leaf);
        facts.stored_bytes += chunk->total_compressed_size();
        facts.uncompressed_bytes += chunk->total_uncompressed_size();
        compressions.insert(arrow::util::Codec::GetCodecAsString(chunk->compression()));
      }
    }
    for (const std::string& name : compressions)
      facts.compression += (facts.compression.empty() ? "" : ", ") + name;
    columns_.push_back(std::move(facts));
  }

  std::unique_ptr<const ArrowSource> source_;
  parquet::ReaderProperties properties_{recycling_pool()};
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::string writer_;
  std::vector<ParquetColumnFacts> columns_;
  std::vector<std::vector<int>> leaves_;  // the Parquet columns of each of columns_
  std::vector<int64_t> rows_of_groups_;
};

}  // namespace

std::shared_ptr<const ParquetProfile> open_profile(const std::string& path, int store_attempts) {
  return std::make_shared<const ArrowProfile>(path, store_attempts);
}

}  // namespace lockstep
