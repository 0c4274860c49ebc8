#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep {

using MetricValue = std::variant<int64_t, double, std::string>;

/// Named values of a step or an epoch, in the order in which they are written. Values that were not measured
/// have no entry.
using MetricRow = std::vector<std::pair<std::string, MetricValue>>;

/// Writes rows as a CSV file with a header (RFC 4180, but lines end in "\n"). The first row's names become
/// the columns. If a later row has new names, the file is replaced by one with these columns added at the
/// end. A value missing from a row is an empty cell. Numbers read back exactly; NaN and infinities are nan,
/// inf and -inf.
///
/// When write() returns, the row has been handed to the operating system, so a killed process loses none. If
/// the disk is full, write() throws std::system_error naming the file, which keeps its complete rows. Not
/// thread-safe.
///
/// Example:
///
///     CsvLog log("metrics.csv");
///     log.write({{"epoch", int64_t{1}}, {"loss", 0.5}});
class CsvLog {
 public:
  /// Creates an empty file. Throws std::system_error naming it if it exists or cannot be created.
  explicit CsvLog(const std::string& path) : file_(path) {}

  /// Throws InvalidArgument if the row is empty or has a name twice.
  void write(const MetricRow& row);

 private:
  void add_columns(const std::vector<std::string>& names);

  OutputFile file_;
  std::vector<std::string> columns_;
};

/// Writes rows as JSON, one object per line. NaN and infinities, which JSON lacks, become the strings "nan",
/// "inf" and "-inf". Otherwise it behaves like CsvLog.
///
/// Example:
///
///     JsonLinesLog log("metrics.jsonl");
///     log.write({{"epoch", int64_t{1}}, {"loss", 0.5}});
class JsonLinesLog {
 public:
  explicit JsonLinesLog(const std::string& path) : file_(path) {}

  void write(const MetricRow& row);

 private:
  OutputFile file_;
};

}  // namespace lockstep
