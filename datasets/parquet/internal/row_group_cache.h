#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Decoded row groups within a memory limit. Row groups of which every row was used are given up first, then
/// those whose last row was used, then those that were unused for the longest time. Thread-safe.
///
/// Example:
///
///     RowGroupCache cache({{.bytes = 8'000, .rows = 1'000}}, limit, decode);
///     const auto group = cache.get(0, /*rows=*/64);
class RowGroupCache {
 public:
  using Rows = std::vector<uint32_t>;
  struct RowGroup {
    std::vector<ParquetValues> columns;
    Rows places;  ///< row i is row places[i] of the columns; empty: row i
  };
  /// Decodes a row group. Its row order[i] comes at place i, unless the order is empty.
  using Decode = std::function<std::vector<ParquetValues>(size_t group, const Rows& order)>;
  /// Returns the rows of a row group in the order in which they will be used, or null. An order of another
  /// number of rows is not used.
  using OrderWithin = std::function<std::shared_ptr<const Rows>(size_t group)>;
  struct Group {
    int64_t bytes = 0;  ///< decoded, at most the limit
    int64_t rows = 0;
  };

  /// `limit` is in bytes. `decode` is called by several threads at the same time, up to `threads` of which
  /// decode ahead.
  RowGroupCache(std::vector<Group> groups, int64_t limit, Decode decode, int threads = 1);
  /// Blocks until row groups that are being decoded ahead are done.
  ~RowGroupCache();
  RowGroupCache(const RowGroupCache&) = delete;
  RowGroupCache& operator=(const RowGroupCache&) = delete;

  /// Returns a row group, of which the caller then uses `rows` rows. Decodes it in the caller's thread, or
  /// waits for the thread that does. Blocks while others hold so many row groups that it does not fit; a
  /// caller that holds one must therefore let go of it first. Rethrows errors of decoding.
  std::shared_ptr<const RowGroup> get(size_t group, int64_t rows);

  /// Says that the last row in a row group's order was used, so that the row group is probably not needed
  /// again soon, unless get() returns it once more. Earlier rows may be unused: a lane can begin within a row
  /// group, whose first rows then come at the epoch's end.
  void note_end(size_t group);

  /// Decodes these row groups in the background if there is room, or row groups whose rows were all used, or
  /// that were not used for long, make it. Their rows are put into the order in which they will be used, so
  /// that a batch copies its rows in one piece instead of fetching each from elsewhere in memory. Errors are
  /// left to get(). Does not block.
  void prefetch(const std::vector<size_t>& groups, const OrderWithin& order_within = {});

  /// Returns the most bytes that row groups have had at the same time.
  int64_t peak_bytes() const;
  /// Returns how often a row group was decoded.
  int64_t num_decoded() const;

 private:
  struct Entry {
    std::shared_ptr<const RowGroup> decoded;  // null while it is decoded
    int64_t rows_left = 0;
    bool is_at_end = false;  // see note_end()
    uint64_t last_use = 0;
  };
  struct Wanted {
    size_t group = 0;
    OrderWithin order_within;
  };
  using Entries = std::map<size_t, Entry>;

  std::deque<Wanted>::iterator wanted_group(size_t group);
  bool is_stale(const Entry& entry) const;
  bool make_room(int64_t bytes, bool only_finished);
  void decode(size_t group, const OrderWithin& order_within, std::unique_lock<std::mutex>& lock);
  void work_ahead();

  const std::vector<Group> groups_;
  const int64_t limit_;
  const Decode decode_;
  const size_t threads_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Entries entries_;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t num_decoded_ = 0;
  uint64_t uses_ = 0;
  std::deque<Wanted> wanted_;
  bool is_ending_ = false;
  std::vector<std::thread> ahead_;  // started by prefetch()
};

/// Returns how many row groups may be in use at the same time if the largest one has `largest` bytes. The
/// other half of the limit is for the row groups that lanes come to next, and there are no more than the
/// first batch can wait for.
size_t max_open_row_groups(int64_t limit, int64_t largest);

}  // namespace lockstep
