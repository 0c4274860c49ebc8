#include "lockstep/training/reporting/records/metrics_log.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_row(const std::string& writer, const std::string& message) {
  throw InvalidArgument("[" + writer + "] expected " + message);
}

void check_row(const std::string& writer, const MetricRow& row) {
  if (row.empty()) refuse_row(writer, "at least one value in a row, but got none");
  std::set<std::string> names;
  for (const auto& [name, value] : row) {
    if (!names.insert(name).second)
      refuse_row(writer, "each name once in a row, but got '" + name + "' twice");
  }
}

/// Quotes an empty text, to tell it from a missing value.
std::string csv_text(const std::string& text) {
  if (!text.empty() && text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv_cell(const MetricValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&value)) return csv_text(*text);
  return exact_number(std::get<double>(value));
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const auto& cell : cells) line += (&cell == &cells.front() ? "" : ",") + cell;
  return line + "\n";
}

std::string csv_header(const std::vector<std::string>& columns) {
  std::vector<std::string> cells;
  cells.reserve(columns.size());
  for (const auto& column : columns) cells.push_back(csv_text(column));
  return csv_line(cells);
}

/// Returns the records after the header of the CSV file at `path`, each with `num_cells` empty cells
/// appended.
std::string widened_records(const std::string& path, size_t num_cells) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot open '" + path + "'");
  const std::string cells(num_cells, ',');
  std::string records;
  bool is_quoted = false;
  bool is_header = true;
  for (char c = 0; file.get(c);) {
    if (c == '"') is_quoted = !is_quoted;
    const bool is_end = c == '\n' && !is_quoted;
    if (!is_header) {
      if (is_end) records += cells;
      records += c;
    }
    is_header = is_header && !is_end;
  }
  if (file.bad()) throw std::system_error(EIO, std::generic_category(), "cannot read '" + path + "'");
  return records;
}

/// Replaces invalid UTF-8 by U+FFFD.
std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_value(const MetricValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&value)) return json_text(*text);
  const double number = std::get<double>(value);
  const std::string text = exact_number(number);
  if (!std::isfinite(number)) return "\"" + text + "\"";
  // Readers take a number without a fraction for an integer, which has no -0.
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

void CsvLog::write(const MetricRow& row) {
  check_row("CsvLog", row);
  std::vector<std::string> added;
  for (const auto& [name, value] : row) {
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) added.push_back(name);
  }
  if (!added.empty()) add_columns(added);

  std::vector<std::string> cells(columns_.size());
  for (const auto& [name, value] : row) {
    const auto column = std::find(columns_.begin(), columns_.end(), name) - columns_.begin();
    cells[static_cast<size_t>(column)] = csv_cell(value);
  }
  file_.append(csv_line(cells));
}

void CsvLog::add_columns(const std::vector<std::string>& names) {
  std::vector<std::string> columns = columns_;
  columns.insert(columns.end(), names.begin(), names.end());
  if (columns_.empty()) {
    file_.append(csv_header(columns));
  } else {
    const std::string path = file_.path();
    OutputFile wider(name_beside(path));
    try {
      wider.append(csv_header(columns) + widened_records(path, names.size()));
      wider.move_to(path);
    } catch (...) {
      std::remove(wider.path().c_str());
      throw;
    }
    file_ = std::move(wider);
  }
  columns_ = std::move(columns);
}

void JsonLinesLog::write(const MetricRow& row) {
  check_row("JsonLinesLog", row);
  std::string line = "{";
  for (const auto& [name, value] : row) {
    line += (line.size() > 1 ? ", " : "") + json_text(name) + ": " + json_value(value);
  }
  file_.append(line + "}\n");
}

}  // namespace lockstep
