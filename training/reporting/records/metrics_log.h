#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep {

using MetricValue = std::variant<int64_t, double, std::string>;

/// Named values of a step or an epoch, in the order in which they are written. What was not measured has no
/// entry.
using MetricRow = std::vector<std::pair<std::string, MetricValue>>;

/// Writes rows as CSV, with a header: RFC 4180 with lines that end in "\n". The first row's names are the
/// columns. Where a later row brings new ones, the file is replaced by one with these columns too, at the
/// end; a value that a row lacks is an empty cell. Numbers read back as the same numbers, NaN and infinities
/// are nan, inf and -inf.
///
/// Rows are with the system when write() returns: a killed process loses none. Where the disk is full,
/// write() throws std::system_error naming the file, which keeps its whole rows. Used by one thread at a
/// time.
class CsvLog {
 public:
  /// Makes an empty file, where there must be none yet. Throws std::system_error naming it otherwise.
  explicit CsvLog(const std::string& path) : file_(path) {}

  /// Throws InvalidArgument for a row with nothing in it or with one name twice.
  void write(const MetricRow& row);

 private:
  void add_columns(const std::vector<std::string>& names);

  OutputFile file_;
  std::vector<std::string> columns_;
};

/// Writes rows as JSON, one object a line. JSON has no NaN and no infinities: they are the texts "nan", "inf"
/// and "-inf". Otherwise as CsvLog.
class JsonLinesLog {
 public:
  explicit JsonLinesLog(const std::string& path) : file_(path) {}

  void write(const MetricRow& row);

 private:
  OutputFile file_;
};

}  // namespace lockstep
