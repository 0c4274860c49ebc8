#pragma once

#include <memory>
#include <vector>

#include "lockstep/datasets/parquet/parquet_writer.h"

namespace lockstep {

/// The part of ParquetWriter that needs Arrow. Functions are as there.
class ParquetRowWriter {
 public:
  virtual ~ParquetRowWriter() = default;

  virtual void append(const std::vector<ParquetValues>& columns) = 0;
  virtual void close() = 0;
};

/// Throws DataError in builds without Arrow.
std::unique_ptr<ParquetRowWriter> write_parquet(const ParquetWriterOptions& options);

}  // namespace lockstep
