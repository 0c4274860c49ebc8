#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/convert_data/click_conversion.h"
#include "lockstep/apps/convert_data/conversion_stream.h"
#include "lockstep/apps/convert_data/convert_options.h"
#include "lockstep/apps/convert_data/output_place.h"
#include "lockstep/datasets/images/ignored_files.h"

namespace lockstep::apps {

enum class ConversionKind { kClicksToParquet, kParquetToClicks, kImagesToParquet, kParquetToImages };

/// A conversion that is ready to run.
struct ConversionPlan {
  ConversionKind kind = ConversionKind::kClicksToParquet;
  std::unique_ptr<OutputPlace> out;
  /// Of each stream of click logs that are read, in the order of the streams.
  std::vector<ClickNotes> notes = {};
  std::vector<std::unique_ptr<ConversionStream>> streams = {};
  int64_t total = 0;               ///< of ConversionProgress::done; 0: not known
  std::string rows_noun = "rows";  ///< or "images"
  std::string counted_in = {};     ///< unit of `total`: MiB or images
  size_t num_inputs = 0;
  IgnoredFiles ignored = {};  ///< files in a folder of images that are not converted
};

/// Opens the inputs and decides from them and from OUT how to convert. Blocks while folders and archives are
/// listed. `progress` must outlive the plan. Throws UsageError naming what does not fit, and DataError naming
/// the input that cannot be read.
ConversionPlan plan_conversion(const ConvertOptions& options, ConversionProgress& progress);

/// Returns whether a place is a zip archive, a folder in one, or a folder with folders that have images or
/// that are all it has.
bool is_image_place(const std::string& place);

}  // namespace lockstep::apps
