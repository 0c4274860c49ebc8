#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// The part of ParquetFile that needs Arrow, whose headers only its sources see. Functions are as in
/// ParquetFile; row groups are checked to exist.
class ParquetRows {
 public:
  virtual ~ParquetRows() = default;

  virtual const std::string& path() const = 0;
  virtual const std::vector<ParquetColumn>& columns() const = 0;
  virtual const std::vector<int64_t>& rows_of_groups() const = 0;
  virtual int64_t decoded_bytes(int row_group) const = 0;
  virtual std::optional<int64_t> num_values(int row_group, size_t column) const = 0;
  virtual std::optional<ParquetRange> range_of(int row_group, const std::string& column) const = 0;
  virtual std::string identity() const = 0;
  virtual std::vector<ParquetValues> read_row_group(int row_group, c10::ArrayRef<uint32_t> order) const = 0;
};

/// Throws DataError in builds without Arrow.
std::shared_ptr<const ParquetRows> open_parquet(const ParquetFileOptions& options);

}  // namespace lockstep
