#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// A column of a Parquet file, as the metadata describes it.
struct ParquetColumnFacts {
  std::string name;
  std::string type;                           ///< as Arrow writes it, such as list<element: int64>
  std::optional<ParquetColumn> read_as = {};  ///< none if the type is not supported
  std::string compression;                    ///< such as ZSTD; several ones are joined by ", "
  int64_t stored_bytes = 0;
  int64_t uncompressed_bytes = 0;  ///< encoded, but not compressed
};

/// The values of a column in a row group, with its nulls.
struct ProfiledValues {
  ParquetValues values;      ///< nulls are 0 or empty
  at::Tensor valid = {};     ///< bool [rows]: false for nulls; undefined if there are none
  at::Tensor elements = {};  ///< the same of the elements of lists
};

/// A Parquet file for programs that describe it. Also takes columns of types that are not supported. All
/// functions are thread-safe.
class ParquetProfile {
 public:
  virtual ~ParquetProfile() = default;

  virtual const std::string& path() const = 0;
  virtual int64_t bytes() const = 0;
  virtual const std::string& writer() const = 0;  ///< the program, as the file names it
  virtual const std::vector<ParquetColumnFacts>& columns() const = 0;
  virtual const std::vector<int64_t>& rows_of_groups() const = 0;
  /// Reads a column of a supported type. Throws DataError naming the file, the row group and the column if
  /// they are damaged, or if a list of fixed length is null.
  virtual ProfiledValues read(int row_group, size_t column) const = 0;
};

/// Reads the metadata. Throws DataError as ParquetFile, and in builds without Arrow.
std::shared_ptr<const ParquetProfile> open_profile(const std::string& path, int store_attempts = 8);

}  // namespace lockstep
