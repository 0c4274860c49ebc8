#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// A file of a data set, with the columns in the data set's order.
struct DatasetFile {
  ParquetFile file;
  std::vector<size_t> places{};  ///< of the data set's columns among those of the file; empty: the same ones

  /// As ParquetFile::read_row_group().
  std::vector<ParquetValues> read_row_group(int row_group, c10::ArrayRef<uint32_t> order = {}) const;
};

/// Opens files by `open(path)`, each once and several at the same time, since each takes requests to its
/// store. Blocks until that is done. Rethrows the error of the first file in their order that has one.
std::vector<ParquetFile> open_parquet_files(const std::vector<std::string>& paths,
                                            const std::function<ParquetFile(const std::string& path)>& open);

/// Opens the files of a data set, and checks that they have the same columns. Throws as ParquetDataset().
std::vector<DatasetFile> open_dataset_files(const std::vector<std::string>& paths,
                                            const ParquetDatasetOptions& options,
                                            const std::shared_ptr<ReadTimes>& times);

/// Says what the values of a column are.
std::string text_of(const ParquetColumn& column);

}  // namespace lockstep
