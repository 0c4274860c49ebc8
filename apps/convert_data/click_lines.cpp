#include "lockstep/apps/convert_data/click_lines.h"

#include <algorithm>
#include <limits>

#include "lockstep/datasets/clicks/internal/row_scan.h"
#include "lockstep/datasets/files/data_error.h"

namespace lockstep::apps {
namespace {

constexpr size_t kBytesAtOnce = size_t{1} << 20;

/// Returns what is wrong with a line, or nothing.
std::optional<std::string> parse_line(std::string_view line, ClickRow& row) {
  if (line.size() > kLongestClickLine)
    return "expected a line of click logs, but got one of more than " + std::to_string(kLongestClickLine) +
           " bytes";
  if (auto error = parse_click_row(without_carriage_return(line), row)) return error;
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  for (size_t i = 0; i < row.numbers.size(); ++i)
    if (row.numbers[i] == kLowest)
      return "field " + std::to_string(i + 2) + ": expected a number above " + std::to_string(kLowest) +
             ", which stands for missing ones in Parquet files";
  return std::nullopt;
}

}  // namespace

LineReader::LineReader(const std::string& path) : source_(open_byte_source(path)) {}

/// Returns false at the end of the file.
bool LineReader::read_more() {
  if (is_at_end_) return false;
  const size_t had = pending_.size();
  pending_.resize(had + kBytesAtOnce);
  const size_t got = source_->read(pending_.data() + had, kBytesAtOnce);
  pending_.resize(had + got);
  is_at_end_ = got < kBytesAtOnce;
  return true;
}

LineBlock LineReader::next(int64_t most) {
  LineBlock block{.text = {}, .first_line = num_lines_ + 1};
  size_t at = 0;
  while (block.num_lines < most) {
    const size_t end = pending_.find('\n', at);
    if (end != std::string::npos) {
      // Of a line that is too long, the beginning has been kept.
      if (!is_cut_off_) {
        block.text.append(pending_, at, end + 1 - at);
        ++block.num_lines;
      }
      is_cut_off_ = false;
      at = end + 1;
      continue;
    }
    if (pending_.size() - at > kLongestClickLine) {
      if (!is_cut_off_) {
        block.text.append(pending_, at, kLongestClickLine + 1).push_back('\n');
        ++block.num_lines;
      }
      is_cut_off_ = true;
      at = pending_.size();
    }
    pending_.erase(0, at);
    at = 0;
    if (read_more()) continue;
    if (!pending_.empty() && !is_cut_off_) {
      block.text += pending_;
      ++block.num_lines;
    }
    pending_.clear();
    break;
  }
  pending_.erase(0, at);
  num_lines_ += block.num_lines;
  return block;
}

bool is_spelled_as_written(std::string_view line) {
  if (line.ends_with('\r')) return false;
  size_t at = line.find('\t');
  for (int field = 0; field < kClickNumbers && at != std::string_view::npos; ++field) {
    const size_t begin = at + 1;
    at = line.find('\t', begin);
    std::string_view number = line.substr(begin, at - begin);
    const bool is_negative = number.starts_with('-');
    if (is_negative) number.remove_prefix(1);
    if (number.starts_with('0') && (is_negative || number.size() > 1)) return false;
  }
  if (at == std::string_view::npos) return true;
  const std::string_view categories = line.substr(at);
  return std::none_of(categories.begin(), categories.end(), [](char c) { return c >= 'A' && c <= 'F'; });
}

ParsedLines parse_click_lines(const std::string& file, const LineBlock& block, bool skips_malformed) {
  ParsedLines parsed;
  parsed.rows.reserve(static_cast<size_t>(block.num_lines));
  int64_t line_number = block.first_line;
  const std::string_view text = block.text;
  ClickRow row;
  for (size_t begin = 0; begin < text.size(); ++line_number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const auto error = parse_line(line, row);
    if (error) {
      const std::string problem = "line " + std::to_string(line_number) + ": " + *error;
      if (!skips_malformed) throw DataError(file + ": " + problem);
      if (parsed.num_malformed++ == 0) parsed.first_malformed = problem;
      continue;
    }
    parsed.rows.push_back(row);
    if (end < text.size() && is_spelled_as_written(line)) continue;
    if (parsed.num_respelled++ == 0) parsed.first_respelled = line_number;
  }
  return parsed;
}

}  // namespace lockstep::apps
