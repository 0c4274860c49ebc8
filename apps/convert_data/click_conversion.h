#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/apps/convert_data/conversion_stream.h"
#include "lockstep/datasets/parquet/parquet_writer.h"

namespace lockstep::apps {

/// The rows of click logs that a conversion left out or changed. Complete when the stream has ended.
struct ClickNotes {
  int64_t num_malformed = 0;
  std::string first_malformed = {};  ///< file, line and problem
  int64_t num_respelled = 0;
  std::string first_respelled = {};  ///< file and line

  /// Adds those of another input.
  void add(const ClickNotes& other);
};

struct ClickConversion {
  std::vector<std::string> in;  ///< files, one after another
  /// See ParquetParts for the meaning with rows_per_file.
  std::string out;
  int64_t rows_per_file = 0;
  int64_t rows_per_group = 0;
  std::string compression = "zstd";
  bool skips_bad = false;
};

/// Click logs to Parquet. The stream counts the file's bytes as done. Throws DataError naming the file.
std::unique_ptr<ConversionStream> clicks_to_parquet(const ClickConversion& conversion, ClickNotes& notes,
                                                    ConversionProgress& progress);

/// Parquet files with the columns of click logs to text. `files` come one after another. The stream counts
/// the files' bytes as done. Throws DataError naming the file, the row group and the row of a value that is
/// none of a click log.
std::unique_ptr<ConversionStream> parquet_to_clicks(std::vector<std::string> files, const std::string& out,
                                                    ConversionProgress& progress);

/// Returns the files of click logs that some places name. Throws DataError as find_data_files(), and if one
/// is named as an image.
std::vector<std::string> find_click_files(const std::vector<std::string>& places);

/// Returns the bytes of a local file; 0 for others.
int64_t bytes_of_file(const std::string& path);

}  // namespace lockstep::apps
