#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/stores/read_times.h"

namespace lockstep {

class ParquetRows;

/// The kind of a column's values.
enum class ParquetShape {
  kNumber,     ///< one number or bool
  kFixedList,  ///< a list or a binary of the same length in each row
  kList,       ///< a list of any length
  kBytes       ///< a string or a binary of any length
};

/// A column of a Parquet file and the tensors that it is read into.
struct ParquetColumn {
  std::string name;
  ParquetShape shape = ParquetShape::kNumber;
  int64_t length = 1;  ///< values per row; 0: it varies
  /// uint16 is read as int32, uint32 and uint64 as int64, and bytes as uint8. Dates, times and decimals are
  /// read as the integers that the file holds, in `unit`. All other types keep theirs.
  at::ScalarType type = at::kFloat;
  /// "days", "s", "ms", "us" or "ns" for dates (since 1970), times (of a day, or since 1970 in UTC) and
  /// durations; such as "1e-2" for decimals with two digits after the point; otherwise empty.
  std::string unit{};

  bool operator==(const ParquetColumn&) const = default;
};

/// A column's values in some rows, on the CPU.
struct ParquetValues {
  /// [rows]; lists of fixed length: [rows, length]; lists of any length, strings and binaries: the values or
  /// bytes of all rows, one after another.
  at::Tensor values;
  /// Only for lists of any length, strings and binaries: int64 [rows + 1]. Row i holds values offsets[i] to
  /// offsets[i + 1] - 1.
  at::Tensor offsets;
};

/// The least and the largest of some numbers, both included.
struct ParquetRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

struct ParquetFileOptions {
  /// A local path, or a URI that begins with file://, s3://, gs://, webhdfs:// or hdfs:// (docs/data.md).
  /// Credentials in it are not shown.
  std::string path;
  /// Names of columns, in the order in which they are read; empty: all columns of the file. Fields of structs
  /// are named as in "image.width". A struct of `bytes` and `path`, as Hugging Face's datasets hold images,
  /// is read as its bytes.
  std::vector<std::string> columns{};
  /// Stands for null numbers, also in lists, in the column's unit. Unset: they are refused.
  std::optional<double> null_fill{};
  /// Instead of null_fill for the columns of these names.
  std::map<std::string, double> column_null_fills{};
  /// Reads lists of any length, strings and binaries that are null as empty ones. Otherwise they are refused,
  /// as lists and binaries of fixed length that are null always are.
  bool null_lists_are_empty = false;
  /// A request to an object store is sent at most so many times if the store is busy or does not answer.
  int store_attempts = 8;
  /// Receives the times of reading. None: they are not measured.
  std::shared_ptr<ReadTimes> times{};
};

/// The row groups of a Parquet file, local or in an object store, as tensors. Supported are columns of bool,
/// of integers, of float16, float32 and float64, of dates, times and decimals of at most 18 digits, and lists
/// of them; and strings and binaries, which may be dictionaries. Most are not copied after they are decoded;
/// bools, uint16, uint32, decimals and dictionaries are. Copies share the open file. All functions are
/// thread-safe.
///
/// Needs a build with Apache Arrow (docs/data.md).
///
/// Example:
///
///     ParquetFile file({.path = "clicks.parquet", .columns = {"label", "ids"}});
///     for (int group = 0; group < file.num_row_groups(); ++group) {
///       const std::vector<ParquetValues> columns = file.read_row_group(group);
///       std::cout << columns[0].values.sum() << '\n';
///     }
class ParquetFile {
 public:
  /// Reads the file's metadata, and no row. Throws DataError naming the file if it is missing, empty,
  /// truncated or not Parquet, if its store does not answer or refuses the credentials, and if this build has
  /// no Arrow; naming the column, too, if the file lacks it,
  /// has two of that name, or its type is not supported. Throws std::invalid_argument if `columns` names one
  /// twice, a column's type does not hold its null fill, or column_null_fills names a column of strings or
  /// binaries, or one that is not read.
  explicit ParquetFile(const ParquetFileOptions& options);

  /// Returns the path, or the URI without credentials and query.
  const std::string& path() const;
  /// Returns the columns that are read, in their order.
  const std::vector<ParquetColumn>& columns() const;
  int num_row_groups() const;
  /// Returns the number of rows in the file.
  int64_t num_rows() const;
  /// Returns the number of rows in a row group. Throws std::out_of_range if there is no such group.
  int64_t num_rows(int row_group) const;
  /// Returns the bytes of the tensors that read_row_group() returns for a row group, from the file's metadata
  /// alone. Exact for numbers and lists of fixed length, and for others if the writer left statistics of
  /// sizes, as pyarrow does. Otherwise each empty list counts as one value, and strings and binaries as their
  /// size before compression, which columns that are stored as dictionaries may exceed. Reading takes more
  /// memory for a while: the compressed bytes, and copies of columns that cannot be shared.
  ///
  /// Throws std::out_of_range if there is no such group, and DataError if its metadata is damaged.
  int64_t decoded_bytes(int row_group) const;

  /// Returns the number of values in a row group of columns()[column], from the file's metadata alone: of
  /// numbers, or of the elements of all lists. None for strings and binaries, and if the writer of lists of
  /// any length left no statistics of sizes. Throws std::out_of_range if there is no such group or column,
  /// and DataError if the group's metadata is damaged.
  std::optional<int64_t> num_values(int row_group, size_t column) const;

  /// Returns a range that holds all values of a column of single numbers in a row group but nulls and NaN, in
  /// the column's unit, as the writer has noted it in the metadata. None if it has not, or the values are no
  /// numbers. The column need not be among columns(). Throws std::out_of_range if there is no such group, and
  /// DataError if there is no such column.
  std::optional<ParquetRange> range_of(int row_group, const std::string& column) const;
  /// Returns a checksum of the metadata, which differs between files with other row groups and, as it holds
  /// their sizes and statistics, almost always between files with other values.
  std::string identity() const;

  /// Reads a row group, and returns the values of columns() in their order. Blocks until it is read, decoded
  /// by the calling thread. Pages with a checksum are compared with it. The tensors own their memory. If
  /// `order` is not empty, row i of the tensors is row order[i] of the row group, which costs less than to
  /// reorder them afterwards.
  ///
  /// Throws std::out_of_range if there is no such row group, std::invalid_argument if `order` is not a
  /// permutation of its rows, and DataError naming the file and the row group
  /// if they are damaged or the store does not answer, and naming the file if it has changed since it was
  /// opened; naming the column, too, if it holds
  /// nulls that are refused, or a number of type uint64 that int64 does not hold.
  std::vector<ParquetValues> read_row_group(int row_group, c10::ArrayRef<uint32_t> order = {}) const;

 private:
  std::shared_ptr<ReadTimes> times_;
  std::shared_ptr<const ParquetRows> rows_;
};

}  // namespace lockstep
