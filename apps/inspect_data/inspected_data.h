#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/apps/convert_data/conversion_stream.h"
#include "lockstep/apps/inspect_data/column_summary.h"

namespace lockstep::apps {

struct InspectedData {
  std::string place;               ///< as the user named it
  std::vector<std::string> paths;  ///< files, folders, patterns, URIs of Parquet files
  /// The most rows to read, about; 0: all.
  int64_t num_rows = 0;
  bool skips_bad = false;  ///< counts malformed rows of click logs, rather than throwing
};

/// Data that is read in parallel by run_streams() into a summary.
struct DataReading {
  std::unique_ptr<DataSummary> summary;
  std::vector<std::unique_ptr<ConversionStream>> streams;
  int64_t total = 0;  ///< of ConversionProgress::done: rows, or bytes of click logs
  std::string unit = "rows";
};

/// Opens the data, whose kind it finds out. Blocks while folders and metadata are read. `progress` must
/// outlive the reading. The summary is complete when the streams have ended. Throws DataError naming what
/// cannot be read.
DataReading open_inspected_data(const InspectedData& data, ConversionProgress& progress);

/// The kinds of data.
DataReading open_parquet_reading(const InspectedData& data, ConversionProgress& progress);
DataReading open_click_reading(const InspectedData& data, ConversionProgress& progress);
DataReading open_image_reading(const InspectedData& data, ConversionProgress& progress);

/// Returns which of `count` parts of these sizes to read for at least `least` rows: evenly spread; all for 0.
std::vector<size_t> sampled_parts(const std::vector<int64_t>& rows, int64_t least);

}  // namespace lockstep::apps
