#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Options of convert_data.
struct ConvertOptions {
  std::vector<std::string> in;  ///< files, folders, patterns, URIs of Parquet files
  std::string out;
  /// Of Parquet files that are written. 0: all rows of an input in one file.
  int64_t rows_per_file = 0;
  /// 0: 131 072 rows of click logs, or as many images as have about 64 MiB, up to 8192.
  int64_t rows_per_group = 0;
  std::string compression = "zstd";
  /// Writes images in an order drawn from this seed; unset: by class and name.
  std::optional<uint64_t> shuffle_seed = {};
  bool skips_bad = false;  ///< leaves out malformed rows of click logs
  bool overwrites = false;
  bool is_quiet = false;
  int64_t threads = 0;  ///< 0: one per core
  /// Flags of the command line that have no effect unless Parquet files are written.
  std::vector<std::string> flags_of_parquet = {};
};

struct ConvertCommandLine {
  enum class Action { kConvert, kHelp, kVersion };

  Action action = Action::kConvert;
  ConvertOptions options;
};

/// Parses the arguments after the program's name. Throws UsageError if they are invalid.
ConvertCommandLine parse_convert_arguments(const std::vector<std::string>& arguments);

/// Returns the text that --help prints; `program` is the program as it was called.
std::string convert_help_text(const std::string& program = "");

/// Returns the places that a list separated by commas names. A list that is the name of something on the disk
/// is one place. Empty pieces are kept.
std::vector<std::string> places_of(const std::string& list);

}  // namespace lockstep::apps
