#include "lockstep/datasets/clicks/internal/indexed_rows.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/datasets/clicks/internal/build_index.h"
#include "lockstep/datasets/clicks/internal/index_place.h"
#include "lockstep/datasets/clicks/internal/row_scan.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/byte_source.h"
#include "lockstep/datasets/files/internal/cache_file.h"

namespace lockstep {
namespace {

/// Adjacent rows are read together up to this many bytes, however long the malformed lines between them are.
constexpr uint64_t kReadAtOnce = uint64_t{4} << 20;

void log_line_of(const ClickFileOptions& options, const std::string& text) {
  if (options.on_message) options.on_message(options.path + ": " + text);
}

}  // namespace

IndexedRows::IndexedRows(const ClickFileOptions& options) : path_(options.path) {
  const bool is_compressed = compression_of(path_) != Compression::kNone;
  const FileVersion source = OpenFile(path_).version();
  if (is_compressed || source.size >= options.save_index_from_bytes) {
    open_cached(options, is_compressed, source);
  } else {
    index_in_memory(options, source);
  }
  const auto& facts = index_.facts();
  if (facts.num_malformed > 0 && !options.skips_malformed)
    throw DataError(path_ + ": " + facts.first_malformed);
}

void IndexedRows::open_cached(const ClickFileOptions& options, bool is_compressed,
                              const FileVersion& source) {
  const auto places = index_places(path_, options.index_folder);
  const auto rows_of = [&](const IndexPlace& place) { return is_compressed ? place.rows : path_; };
  for (const auto& place : places) {
    if (try_open(place.index, rows_of(place), source)) return;
  }
  std::string refusals;
  for (const auto& place : places) {
    bool has_begun = false;
    try {
      std::filesystem::create_directories(std::filesystem::path(place.index).parent_path());
      build_cache_file(place.index,
                       {.is_ready = [&] { return try_open(place.index, rows_of(place), source); },
                        .write =
                            [&](NewFile& index) {
                              has_begun = true;
                              log_line_of(options, is_compressed ? "decompressing and indexing it, once"
                                                                 : "indexing its rows, once");
                              build_index(options, source, is_compressed ? place.rows : "", index);
                            },
                        .on_wait = [&] { log_line_of(options, "waiting for the process that indexes it"); }});
    } catch (const std::system_error& error) {  // the folder cannot be written, or its disk is full
      refusals.append(refusals.empty() ? "" : "; ").append(error.what());
      if (has_begun) log_line_of(options, error.what());
      continue;
    }
    if (file_ != nullptr || try_open(place.index, rows_of(place), source)) return;
    throw DataError(path_ + ": expected a file that stays as it is, but it changed while it was indexed");
  }
  if (places.empty()) refusals = "no folder for it is known";
  if (is_compressed || !options.index_folder.empty())
    throw DataError(path_ + ": expected a folder with room for its " +
                    (is_compressed ? "decompressed rows" : "index") + ", but: " + refusals +
                    "; choose another index folder");
  log_line_of(options, "its index is kept in memory, as it cannot be saved: " + refusals);
  index_in_memory(options, source);
}

bool IndexedRows::try_open(const std::string& index_path, const std::string& rows_path,
                           const FileVersion& source) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(index_path, error)) return false;
  try {
    const OpenFile index_file(index_path);
    auto mapped = std::make_unique<const MappedFile>(index_file);
    auto index = RowIndex::parse(mapped->bytes(), source);
    if (!index || index->num_rows() == 0) return false;
    mapped->release_pages();  // parse() has read all of them
    auto rows = std::make_unique<const OpenFile>(rows_path);
    if (rows->version() != index->facts().rows) return false;
    file_ = std::move(rows);
    mapped_ = std::move(mapped);
    index_ = *std::move(index);
    return true;
  } catch (const DataError&) {  // it is built again
    return false;
  }
}

void IndexedRows::index_in_memory(const ClickFileOptions& options, const FileVersion& source) {
  file_ = std::make_unique<const OpenFile>(path_);
  RowIndexWriter writer([&](std::string_view bytes) { bytes_ += bytes; });
  const std::string header = write_index(options, source, {}, writer);
  bytes_.replace(0, header.size(), header);
  bytes_.shrink_to_fit();
  auto index = RowIndex::parse(bytes_, source);
  if (!index) throw DataError(path_ + ": expected a file that stays as it is, but it changed");
  index_ = *std::move(index);
}

void IndexedRows::read(size_t first, size_t count, std::vector<ClickRow>& rows) const {
  while (count > 0) {
    size_t at_once = count;
    auto range = index_.range(first, at_once);
    while (range && at_once > 1 && range->end - range->begin > kReadAtOnce) {
      at_once = (at_once + 1) / 2;
      range = index_.range(first, at_once);
    }
    if (!range) fail_changed();
    if (at_once == 1) range->end = std::min(range->end, range->begin + kLongestClickLine + 1);
    read_at_once(*range, first, at_once, rows);
    first += at_once;
    count -= at_once;
  }
}

void IndexedRows::read_at_once(const RowIndex::Range& range, size_t first, size_t count,
                               std::vector<ClickRow>& rows) const {
  std::string bytes(range.end - range.begin, '\0');
  bytes.resize(file_->read_at(range.begin, bytes.data(), bytes.size()));
  for (size_t row = first; row < first + count; ++row) {
    const uint64_t offset = index_.offset(row);
    if (offset < range.begin || offset - range.begin >= bytes.size()) fail_changed();
    const auto line = std::string_view(bytes).substr(offset - range.begin);
    if (parse_click_row(without_carriage_return(line.substr(0, line.find('\n'))), rows.emplace_back()))
      fail_changed();
  }
}

void IndexedRows::fail_changed() const {
  throw DataError(path_ + ": expected the rows that it had when it was opened, but it has changed");
}

}  // namespace lockstep
