#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class ParquetRows;

/// What a value of a column is.
enum class ParquetShape {
  kNumber,     ///< one number or bool
  kFixedList,  ///< a list of the same length in each row
  kList        ///< a list of any length
};

/// A column of a Parquet file and the tensors that it is read into.
struct ParquetColumn {
  std::string name;
  ParquetShape shape = ParquetShape::kNumber;
  int64_t length = 1;  ///< values per row; 0: it varies
  /// uint16 is read as int32, and uint32 as int64; all other types keep theirs.
  at::ScalarType type = at::kFloat;

  bool operator==(const ParquetColumn&) const = default;
};

/// A column's values in some rows, on the CPU.
struct ParquetValues {
  /// [rows]; lists of fixed length: [rows, length]; lists of any length: the values of all rows, one after
  /// another.
  at::Tensor values;
  /// Only for lists of any length: int64 [rows + 1]. Row i holds values offsets[i] to offsets[i + 1] - 1.
  at::Tensor offsets;
};

struct ParquetFileOptions {
  std::string path;
  /// Names of columns, in the order in which they are read; empty: all columns of the file.
  std::vector<std::string> columns{};
  /// Stands for null numbers, also in lists. Unset: nulls are refused. A list that is null is always refused.
  std::optional<double> null_fill{};
};

/// The row groups of a local Parquet file as tensors. Supported are columns of bool, of integers but uint64,
/// of float16, float32 and float64, and lists of them. Numbers without nulls are not copied after they are
/// decoded; bools, and unsigned integers that are widened, are. Copies share the open file. All functions are
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
  /// truncated or not Parquet, and if this build has no Arrow; naming the column, too, if the file lacks it,
  /// has two of that name, or its type is not supported. Throws std::invalid_argument if `columns` names one
  /// twice, or a column's type does not hold `null_fill`.
  explicit ParquetFile(const ParquetFileOptions& options);

  const std::string& path() const;
  /// Returns the columns that are read, in their order.
  const std::vector<ParquetColumn>& columns() const;
  int num_row_groups() const;
  /// Returns the number of rows in the file.
  int64_t num_rows() const;
  /// Returns the number of rows in a row group. Throws std::out_of_range if there is no such group.
  int64_t num_rows(int row_group) const;
  /// Returns the bytes of the tensors that read_row_group() returns for a row group, from the file's metadata
  /// alone. Exact for numbers and lists of fixed length. Lists of any length are exact if the writer left
  /// statistics of sizes, as pyarrow does; otherwise each empty list counts as one value. Reading takes more
  /// memory for a while: the compressed bytes, and copies of columns that cannot be shared.
  ///
  /// Throws std::out_of_range if there is no such group, and DataError if its metadata is damaged.
  int64_t decoded_bytes(int row_group) const;

  /// Reads a row group, and returns the values of columns() in their order. Blocks until it is read, decoded
  /// by the calling thread. Pages with a checksum are compared with it. The tensors own their memory.
  ///
  /// Throws std::out_of_range if there is no such row group, and DataError naming the file and the row group
  /// if they are damaged, or the file has changed since it was opened; naming the column, too, if it holds
  /// nulls that are refused.
  std::vector<ParquetValues> read_row_group(int row_group) const;

 private:
  std::shared_ptr<const ParquetRows> rows_;
};

}  // namespace lockstep
