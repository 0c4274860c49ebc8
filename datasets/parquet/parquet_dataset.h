#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_batch.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

struct ParquetState;

struct ParquetDatasetOptions {
  /// Files, folders and patterns such as "day_*.parquet", on this machine or as URIs such as
  /// "s3://bucket/clicks/day_*.parquet" (docs/data.md). A folder stands for the files in it, but not for
  /// those in its subfolders and those whose name begins with "." or "_". The files of a folder or a pattern
  /// are sorted, with numbers in their order: day_2 comes before day_10. A file named twice is taken once.
  std::vector<std::string> paths;
  std::vector<std::string> columns{};  ///< as in ParquetFileOptions, like the next four
  std::optional<double> null_fill{};
  std::map<std::string, double> column_null_fills{};
  bool null_lists_are_empty = false;
  int store_attempts = 8;
  /// Leaves out the row groups in which no row has values in these ranges, by name of column, as the files'
  /// metadata shows; see ParquetFile::range_of(). Rows that are outside stay if others of their row group are
  /// not, and so do row groups whose writer has noted no ranges.
  std::map<std::string, ParquetRange> row_groups_with{};
  /// The most bytes that decoded row groups may have, with the memory that is kept to decode the next ones
  /// into, and a sixth, at most 48 MiB, for what is not counted, such as the files' metadata. Row groups make
  /// room for other row groups, but not for batches: a program that keeps large batches can exceed the limit.
  /// Unless you set `lanes`, the order of shuffled rows depends on it, too.
  int64_t memory_limit = int64_t{1} << 30;
  /// The number of row groups that a shuffled batch's rows are from. 0: as many as fit into half of the
  /// memory for row groups and into 256 MiB, but at most 16. The order of shuffled rows depends on it.
  int64_t lanes = 0;
  /// The number of threads that decode row groups ahead. 0: as many as this process has cores, but at most 4.
  int threads = 0;
  /// Leaves out row groups that are damaged, and those that are larger than the memory limit. To find
  /// damaged ones, all rows are read once at the start. Otherwise the first one is an error. A file that
  /// vanishes or changes, and a store that does not answer, are errors all the same.
  bool skips_unreadable = false;
  /// Receives a line for each row group that is left out.
  std::function<void(const std::string&)> on_message{};
};

/// Returns whether paths as in ParquetDatasetOptions name Parquet files, whose names end in .parquet or .pq.
/// Throws DataError naming two files if some do and some do not, and naming the path if there is no such
/// file.
bool are_parquet_files(const std::vector<std::string>& paths);

/// A row of a ParquetDataset in its file.
struct ParquetPlace {
  std::string path;
  int row_group = 0;
  int64_t row = 0;  ///< in the row group
};

/// The rows of several Parquet files with the same columns, one file after another: an indexed dataset whose
/// chunks are row groups. Strategies shuffle it as ChunkedOrder says: the order depends on the seed and the
/// epoch, and each worker reads the row groups of its own lanes. Decoded row groups are kept within a memory
/// limit, and the next ones are decoded ahead in the background. Copies share the files and the memory. All
/// functions are thread-safe.
///
/// Needs a build with Apache Arrow (docs/data.md).
///
/// Example:
///
///     ParquetDataset clicks({.paths = {"clicks/*.parquet"}, .columns = {"label", "ids"}});
///     auto batches = strategy.distribute_dataset(clicks, {.global_batch_size = 1024, .shuffle_seed = 1});
///     for (const auto& batch : batches) strategy.run(train_step, model, optimizer, batch);
class ParquetDataset {
 public:
  /// Reads the metadata of all files. Blocks until that is done. Throws as ParquetFile() does for each file,
  /// and DataError naming the file and the column if a column's type differs from that in the first file, if
  /// a file has more columns than the first one and none were chosen, if a row group is larger than the
  /// memory limit, or if there is no file. Throws std::invalid_argument for a memory limit below 1 and
  /// negative lanes and threads.
  explicit ParquetDataset(const ParquetDatasetOptions& options);

  std::optional<size_t> size() const;
  /// Returns the rows in the order of `indices`. The batch owns its memory. Blocks until their row groups are
  /// decoded, in the caller's thread if they were not ahead. Throws std::invalid_argument if an index is not
  /// below size(), and as ParquetFile::read_row_group().
  ParquetBatch get_batch(c10::ArrayRef<size_t> indices) const;

  /// Returns a description of the files' rows, row groups and columns, with a checksum of their metadata.
  /// Reads no row.
  std::string identity() const;

  /// Returns the columns of batches, in their order.
  const std::vector<ParquetColumn>& columns() const;
  /// Returns the files in the order of their rows, URIs without credentials and query.
  const std::vector<std::string>& paths() const;
  /// Returns where a row is. Throws std::invalid_argument if the index is not below size().
  ParquetPlace place_of(size_t index) const;

  /// Returns the number of row groups that were left out as they are unreadable, and of their rows.
  int64_t num_skipped_row_groups() const;
  int64_t num_skipped_rows() const;
  /// Returns the times of reading so far, those of opening the files among them.
  const ReadTimes& read_times() const;
  /// Returns the most bytes that decoded row groups have had at the same time.
  int64_t peak_memory() const;
  /// Returns how often a row group was decoded.
  int64_t num_decoded_row_groups() const;

  /// Make this a ChunkedDataset.
  std::vector<size_t> chunk_sizes() const;
  size_t max_open_chunks() const;
  using OrderWithin = std::function<std::shared_ptr<const std::vector<uint32_t>>(size_t chunk)>;
  void prefetch_chunks(const std::vector<size_t>& chunks, const OrderWithin& order_within = {}) const;

 private:
  std::shared_ptr<ParquetState> state_;
};

}  // namespace lockstep
