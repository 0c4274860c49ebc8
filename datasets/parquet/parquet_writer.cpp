#include "lockstep/datasets/parquet/parquet_writer.h"

#include "lockstep/datasets/parquet/internal/parquet_row_writer.h"

namespace lockstep {

ParquetWriter::ParquetWriter(const ParquetWriterOptions& options) : rows_(write_parquet(options)) {}
ParquetWriter::~ParquetWriter() = default;

void ParquetWriter::append(const std::vector<ParquetValues>& columns) {
  rows_->append(columns);
}

void ParquetWriter::close() {
  rows_->close();
}

}  // namespace lockstep
