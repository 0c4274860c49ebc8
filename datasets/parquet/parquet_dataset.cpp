#include "lockstep/datasets/parquet/parquet_dataset.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <unordered_map>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/parquet/internal/dataset_files.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/internal/recycled_tensor.h"
#include "lockstep/datasets/parquet/internal/row_gatherer.h"
#include "lockstep/datasets/parquet/internal/row_group_cache.h"
#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/stores/internal/read_error.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

/// The part of a ParquetDataset that copies share.
struct ParquetState {
  struct Group {
    size_t file = 0;
    int row_group = 0;
  };

  std::vector<std::string> paths;
  std::vector<DatasetFile> files;
  std::vector<Group> groups;      // that are not left out
  std::vector<size_t> firsts{0};  // the number of each group's first row, and of all rows
  int64_t skipped_groups = 0;
  int64_t skipped_rows = 0;
  size_t lanes = 1;
  std::string null_rules;
  std::shared_ptr<ReadTimes> times = std::make_shared<ReadTimes>();
  std::optional<RecyclingLimit> recycling;
  std::unique_ptr<RowGroupCache> cache;

  size_t group_of(size_t index) const {
    return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), index) - firsts.begin()) - 1;
  }
};

namespace {

constexpr int kMostThreads = 4;

/// Returns whether a row group may have a row with values in all ranges.
bool may_have(const ParquetFile& file, int row_group, const std::map<std::string, ParquetRange>& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [&](const auto& named) {
    const auto range = file.range_of(row_group, named.first);
    return !range || (range->least <= named.second.most && range->most >= named.second.least);
  });
}

DataError too_large(const ParquetFile& file, int row_group, int64_t bytes, int64_t limit) {
  return DataError(file.path() + ": row group " + std::to_string(row_group) + ": expected at most " +
                   std::to_string(limit) + " bytes, the memory limit, but got " + std::to_string(bytes) +
                   "; raise the limit, or write smaller row groups");
}

/// Throws DataError if a decoded row group does not fit: the metadata may have said less.
void check_size(const ParquetFile& file, int row_group, const std::vector<ParquetValues>& values,
                int64_t limit) {
  int64_t bytes = 0;
  for (const ParquetValues& column : values)
    bytes += static_cast<int64_t>(column.values.nbytes()) +
             (column.offsets.defined() ? static_cast<int64_t>(column.offsets.nbytes()) : 0);
  if (bytes > limit) throw too_large(file, row_group, bytes, limit);
}

/// Returns the bytes of a row group, or nothing if it has no row that is wanted. Throws DataError if it
/// cannot be used.
std::optional<int64_t> bytes_of(const DatasetFile& of_dataset, int row_group,
                                const ParquetDatasetOptions& options) {
  const ParquetFile& file = of_dataset.file;
  if (!may_have(file, row_group, options.row_groups_with)) return std::nullopt;
  const int64_t bytes = file.decoded_bytes(row_group);
  if (bytes > options.memory_limit) throw too_large(file, row_group, bytes, options.memory_limit);
  if (options.skips_unreadable)
    check_size(file, row_group, file.read_row_group(row_group), options.memory_limit);
  return bytes;
}

int num_threads(const ParquetDatasetOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

std::string text_of_null_rules(const ParquetDatasetOptions& options) {
  std::string text = options.null_lists_are_empty ? "lists" : "";
  if (options.null_fill) text += " " + std::to_string(*options.null_fill);
  for (const auto& [name, fill] : options.column_null_fills) text += " " + name + " " + std::to_string(fill);
  return text;
}

/// Returns the bytes of a row group with the places of its rows in their order, but at most the limit.
int64_t with_places(int64_t bytes, int64_t rows, int64_t limit) {
  int64_t places = 0, all = 0;
  if (__builtin_mul_overflow(rows, static_cast<int64_t>(sizeof(uint32_t)), &places) ||
      __builtin_add_overflow(bytes, places, &all))
    return limit;
  return std::min(all, limit);
}

/// The parts of the memory limit, in bytes.
struct MemoryShares {
  int64_t largest = 0;     ///< size of the largest row group
  int64_t row_groups = 0;  ///< limit of the decoded row groups
  int64_t recycled = 0;    ///< limit of row groups, batches and memory that is kept for the next ones
};

MemoryShares memory_shares(int64_t limit, const std::vector<RowGroupCache::Group>& groups) {
  int64_t largest = 0;
  for (const RowGroupCache::Group& group : groups) largest = std::max(largest, group.bytes);
  // Metadata, the order of shuffled rows, and what allocators keep are not counted.
  constexpr int64_t kMostUncounted = int64_t{48} << 20;
  const int64_t recycled = std::max(limit - std::min(limit / 6, kMostUncounted), largest);
  // Beside row groups there are batches, pieces that fit no column any more, and bytes that are still to be
  // decoded.
  return {.largest = largest,
          .row_groups = std::max(recycled - std::min(recycled / 4, largest), largest),
          .recycled = recycled};
}

/// Returns the values of no rows.
std::vector<ParquetValues> nothing_of(const std::vector<ParquetColumn>& columns) {
  std::vector<ParquetValues> values;
  for (const ParquetColumn& column : columns) {
    const bool has_offsets = column.shape == ParquetShape::kList || column.shape == ParquetShape::kBytes;
    const std::vector<int64_t> shape = column.shape == ParquetShape::kFixedList
                                           ? std::vector<int64_t>{0, column.length}
                                           : std::vector<int64_t>{0};
    values.push_back({.values = at::empty(shape, column.type),
                      .offsets = has_offsets ? at::zeros({1}, at::kLong) : at::Tensor()});
  }
  return values;
}

}  // namespace

bool are_parquet_files(const std::vector<std::string>& paths) {
  std::string parquet, other;
  for (const std::string& path : find_parquet_files(paths)) {
    const std::string name = is_uri(path) ? parse_uri(path).name() : path;
    (name.ends_with(".parquet") || name.ends_with(".pq") ? parquet : other) = name;
  }
  if (!parquet.empty() && !other.empty())
    throw DataError(other + ": expected Parquet files alone, as " + parquet + " is one");
  return !parquet.empty();
}

ParquetDataset::ParquetDataset(const ParquetDatasetOptions& options)
    : state_(std::make_shared<ParquetState>()) {
  if (options.memory_limit < 1)
    throw std::invalid_argument("[ParquetDataset] memory_limit: expected 1 or more bytes, but got " +
                                std::to_string(options.memory_limit));
  if (options.lanes < 0)
    throw std::invalid_argument("[ParquetDataset] lanes: expected 0 or more, but got " +
                                std::to_string(options.lanes));
  if (options.threads < 0)
    throw std::invalid_argument("[ParquetDataset] threads: expected 0 or more, but got " +
                                std::to_string(options.threads));
  ParquetState& state = *state_;
  const std::vector<std::string> paths = find_parquet_files(options.paths, options.store_attempts);
  if (paths.empty()) throw std::invalid_argument("[ParquetDataset] paths: expected a file, but got none");
  state.files = open_dataset_files(paths, options, state.times);
  state.null_rules = text_of_null_rules(options);
  for (const DatasetFile& opened : state.files) state.paths.push_back(opened.file.path());
  std::vector<RowGroupCache::Group> sizes;
  for (size_t i = 0; i < state.files.size(); ++i) {
    const ParquetFile& file = state.files[i].file;
    for (int group = 0; group < file.num_row_groups(); ++group) {
      if (file.num_rows(group) == 0) continue;
      std::optional<int64_t> bytes;
      try {
        bytes = bytes_of(state.files[i], group, options);
      } catch (const ReadError&) {
        throw;  // the rows may be there the next time
      } catch (const DataError& error) {
        if (!options.skips_unreadable) throw;
        ++state.skipped_groups;
        state.skipped_rows += file.num_rows(group);
        if (options.on_message)
          options.on_message("left out " + std::to_string(file.num_rows(group)) + " rows: " + error.what());
      }
      if (!bytes) continue;
      state.groups.push_back({.file = i, .row_group = group});
      state.firsts.push_back(state.firsts.back() + static_cast<size_t>(file.num_rows(group)));
      sizes.push_back({.bytes = with_places(*bytes, file.num_rows(group), options.memory_limit),
                       .rows = file.num_rows(group)});
    }
  }
  if (sizes.empty() && !options.row_groups_with.empty() && state.skipped_groups == 0)
    throw DataError(state.paths.front() +
                    ": expected rows in the ranges of row_groups_with, but no row group of " +
                    std::to_string(state.paths.size()) + " files has any");
  const MemoryShares shares = memory_shares(options.memory_limit, sizes);
  state.lanes = options.lanes > 0 ? static_cast<size_t>(options.lanes)
                                  : max_open_row_groups(shares.row_groups, shares.largest);
  const auto decode = [&state, limit = options.memory_limit](size_t group, const RowGroupCache::Rows& order) {
    const ParquetState::Group& of = state.groups[group];
    const DatasetFile& opened = state.files[of.file];
    auto values = opened.read_row_group(of.row_group, order);
    check_size(opened.file, of.row_group, values, limit);
    return values;
  };
  state.recycling.emplace(shares.recycled);
  state.cache =
      std::make_unique<RowGroupCache>(std::move(sizes), shares.row_groups, decode, num_threads(options));
}

std::optional<size_t> ParquetDataset::size() const {
  return state_->firsts.back();
}

ParquetBatch ParquetDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  const ParquetState& state = *state_;
  check_indices(indices, state.firsts.back(), "ParquetDataset");
  struct Wanted {
    size_t group = 0;
    std::vector<int64_t> rows;
    std::vector<int64_t> places;
  };
  // In the order in which their first rows come: a lane's row group is used up before its next one needs its
  // memory.
  std::deque<Wanted> groups;
  std::unordered_map<size_t, Wanted*> of_groups;
  Wanted* wanted = nullptr;
  size_t begin = 0, end = 0;  // of the group that the last index was in
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < begin || indices[i] >= end) {
      const size_t group = state.group_of(indices[i]);
      begin = state.firsts[group];
      end = state.firsts[group + 1];
      Wanted*& of_group = of_groups[group];
      if (of_group == nullptr) of_group = &groups.emplace_back(Wanted{.group = group});
      wanted = of_group;
    }
    wanted->rows.push_back(static_cast<int64_t>(indices[i] - begin));
    wanted->places.push_back(static_cast<int64_t>(i));
  }
  if (groups.empty()) return {nothing_of(columns())};
  RowGatherer gatherer(static_cast<int64_t>(indices.size()));
  for (Wanted& of_group : groups) {
    const auto get = [&] {
      return state.cache->get(of_group.group, static_cast<int64_t>(of_group.rows.size()));
    };
    const auto decoded = ReadTimes::timed(state.times.get(), ReadPart::kWait, get);
    const std::vector<uint32_t>& places = decoded->places;
    if (!places.empty()) {
      for (int64_t& row : of_group.rows) row = places[static_cast<size_t>(row)];
      const auto last = static_cast<int64_t>(places.size()) - 1;
      if (std::ranges::find(of_group.rows, last) != of_group.rows.end())
        state.cache->note_end(of_group.group);
    }
    gatherer.add(decoded->columns, of_group.rows, of_group.places);
  }
  return {gatherer.finish()};
}

std::string ParquetDataset::identity() const {
  DataChecksum checksum;
  std::string columns;
  for (const ParquetColumn& column : this->columns())
    columns += (columns.empty() ? "" : ", ") + column.name + " (" + text_of(column) + ")";
  for (const ParquetState::Group& group : state_->groups) {
    const int64_t place[] = {static_cast<int64_t>(group.file), group.row_group};
    checksum.add(place, sizeof place);
  }
  checksum.add(state_->null_rules.data(), state_->null_rules.size());
  for (const DatasetFile& opened : state_->files) {
    const std::string of_file = opened.file.identity();
    checksum.add(of_file.data(), of_file.size());
  }
  return "Parquet files of " + std::to_string(state_->firsts.back()) + " rows in " +
         std::to_string(state_->groups.size()) + " row groups (checksum of their metadata " +
         checksum.text() + "): " + columns;
}

const std::vector<ParquetColumn>& ParquetDataset::columns() const {
  return state_->files.front().file.columns();
}

const std::vector<std::string>& ParquetDataset::paths() const {
  return state_->paths;
}

ParquetPlace ParquetDataset::place_of(size_t index) const {
  check_indices({index}, state_->firsts.back(), "ParquetDataset");
  const size_t group = state_->group_of(index);
  const ParquetState::Group& of = state_->groups[group];
  return {.path = state_->files[of.file].file.path(),
          .row_group = of.row_group,
          .row = static_cast<int64_t>(index - state_->firsts[group])};
}

int64_t ParquetDataset::num_skipped_row_groups() const {
  return state_->skipped_groups;
}

int64_t ParquetDataset::num_skipped_rows() const {
  return state_->skipped_rows;
}

const ReadTimes& ParquetDataset::read_times() const {
  return *state_->times;
}

int64_t ParquetDataset::peak_memory() const {
  return state_->cache->peak_bytes();
}

int64_t ParquetDataset::num_decoded_row_groups() const {
  return state_->cache->num_decoded();
}

std::vector<size_t> ParquetDataset::chunk_sizes() const {
  std::vector<size_t> sizes(state_->groups.size());
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = state_->firsts[i + 1] - state_->firsts[i];
  return sizes;
}

size_t ParquetDataset::max_open_chunks() const {
  return state_->lanes;
}

void ParquetDataset::prefetch_chunks(const std::vector<size_t>& chunks,
                                     const OrderWithin& order_within) const {
  state_->cache->prefetch(chunks, order_within);
}

}  // namespace lockstep
