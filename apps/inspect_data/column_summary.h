#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/apps/inspect_data/number_bins.h"
#include "lockstep/apps/inspect_data/value_counts.h"

namespace lockstep::apps {

/// Summary of numbers. Not thread-safe.
struct NumberSummary {
  /// With `is_whole`, the numbers are integers.
  explicit NumberSummary(bool is_whole = false) : bins(is_whole) {}

  int64_t count = 0;  ///< finite ones
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  double least = std::numeric_limits<double>::infinity();  ///< of the finite ones
  double most = -std::numeric_limits<double>::infinity();
  long double sum = 0;
  NumberBins bins;
  /// Of the sign times log2(1 + |x|), in which numbers of several magnitudes have bins of their own.
  NumberBins magnitudes = NumberBins();

  void add(std::span<const double> numbers);
  void merge(const NumberSummary& other);
  double mean() const { return static_cast<double>(sum / static_cast<long double>(count)); }
};

/// Summary of the images in a column.
struct ImageSummary {
  ValueCounts formats;
  ValueCounts sizes;  ///< such as 28 x 28
  NumberSummary widths = NumberSummary(true);
  NumberSummary heights = NumberSummary(true);

  void add(std::string_view image);
  void merge(const ImageSummary& other);
};

enum class ColumnKind { kIntegers, kFloats, kTexts, kBinaries, kImages, kOther };

/// Summary of a column: of the rows that were read, and of what metadata says about all.
struct ColumnSummary {
  std::string name;
  std::string type;
  ColumnKind kind = ColumnKind::kOther;
  bool has_lists = false;
  std::string unit = {};  ///< of dates, times and decimals
  std::string compression = {};
  int64_t stored_bytes = 0;
  int64_t uncompressed_bytes = 0;
  int64_t decoded_bytes = 0;  ///< of the rows that were read

  int64_t num_rows = 0;  ///< that were read
  int64_t num_nulls = 0;
  int64_t num_null_elements = 0;                                ///< of lists
  NumberSummary numbers = NumberSummary();                      ///< of numbers, and of the elements of lists
  int64_t least_integer = std::numeric_limits<int64_t>::max();  ///< exact, of integers
  int64_t most_integer = std::numeric_limits<int64_t>::min();
  NumberSummary lengths = NumberSummary(true);  ///< of lists in elements, of texts and binaries in bytes
  ValueCounts values;
  ImageSummary images;

  /// Adds numbers that are not null.
  void add_integers(std::span<const int64_t> added);
  void add_floats(std::span<const double> added);
  /// Adds texts or binaries that are not null.
  void add_bytes(std::span<const std::string_view> added);
  /// Adds what another summary of this column has read. Its metadata is left as it is.
  void merge(const ColumnSummary& other);
};

/// Returns a column's values with their counts, the most frequent first, if they were counted. Integers come
/// in their order.
std::vector<std::pair<std::string, int64_t>> counted_values(const ColumnSummary& column);

struct DataSummary {
  std::string place;
  std::string kind;         ///< Parquet, click logs or images
  std::string writer = {};  ///< of Parquet files: the program, as the first file names it
  std::vector<std::string> files = {};
  int64_t stored_bytes = 0;
  std::optional<int64_t> num_rows = {};  ///< of all; none if only a part of click logs was read
  int64_t rows_read = 0;
  std::string sampling = {};   ///< how the rows were chosen; empty if all were read
  int64_t num_row_groups = 0;  ///< of Parquet files
  int64_t least_group_rows = 0;
  int64_t most_group_rows = 0;
  int64_t num_malformed = 0;
  std::vector<ColumnSummary> columns = {};
  std::vector<std::string> problems = {};

  bool is_sample() const { return !sampling.empty(); }
};

/// Returns the column of labels, or null.
const ColumnSummary* label_column(const DataSummary& summary);

}  // namespace lockstep::apps
