#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/row_admission.h"
#include "lockstep/parameter_server/shards/row_count_sketch.h"
#include "lockstep/parameter_server/shards/row_disk.h"
#include "lockstep/parameter_server/shards/row_store.h"
#include "lockstep/parameter_server/shards/saved_rows.h"
#include "lockstep/parameter_server/shards/shard_optimizer.h"
#include "lockstep/parameter_server/variables/row_growth.h"

namespace lockstep {

/// Values and optimizer state of the rows of a shard of a table that grows. A row is made by the update in
/// which its id occurs for the `min_frequency`-th time, and until then shows its initial values. It is
/// removed after `steps_to_live` updates without it, or when the memory limit has no room for a new row and
/// it is the row that no update used for longest. If one update has more new rows than fit, those with the
/// highest numbers are not made, and their gradients are dropped. With a disk, the limit is that of the rows
/// in memory and of what else the limit counts: the other rows are on the disk, and none is removed for it.
///
/// The rows and their values depend only on the sequence of updates. Not thread-safe.
class GrowingRows {
 public:
  /// `like` gives the shape and dtype of a row, as for make_values(). Throws InvalidArgument for numbers out
  /// of range, and for a limit that has no room for a row, or none with a disk. With a disk, functions also
  /// throw std::system_error naming the disk's folder; the rows are lost then.
  GrowingRows(const FilteredRows& filtered, const RowGrowth& growth, const at::Tensor& like,
              const UpdateRule& rule, std::shared_ptr<RowDisk> disk = nullptr);

  const RowGrowth& growth() const { return growth_; }
  /// Returns a copy of these rows, numbered within the shard.
  at::Tensor read(std::span<const int64_t> rows) const;

  /// Makes update number `update` (1 or more) of these rows; see ShardOptimizer::step_rows(). `shared` has
  /// the count of steps. Throws as ShardOptimizer::step_rows() does; nothing is changed then.
  void step(ShardOptimizer& shared, const at::Tensor& rows, const at::Tensor& gradients, double lr,
            uint64_t update);

  int64_t size() const { return store_->size(); }
  int64_t rows_in_memory() const { return store_->rows_in_memory(); }
  /// Returns the bytes of all memory that the limit counts.
  int64_t bytes() const { return store_->bytes() + (sketch_ ? sketch_->bytes() : 0); }
  /// Returns the largest number of such bytes after a step so far.
  int64_t most_bytes() const { return std::max(most_bytes_, bytes()); }
  int64_t disk_bytes() const { return store_->disk_bytes(); }

  /// Rows and what belongs to each, the row unused for longest first.
  struct Saved {
    at::Tensor values;
    /// The optimizer's state by name; then "rows", numbers within the table, "row_last_update" and, with a
    /// minimum frequency, "row_counts", those of a RowCountSketch.
    std::vector<std::pair<std::string, at::Tensor>> state;
    /// If set, rows to restore() in pieces; `values` and `state` have none then.
    std::shared_ptr<SavedRows> rows{};
  };
  /// With a disk, the tensors are mapped files, whose pages take memory only while there is enough.
  Saved save() const;
  /// Throws InvalidArgument naming the first part that save() cannot have returned, for rows that are not in
  /// the shard and for updates after `update`. Nothing is changed then, or, if rows are read in pieces, there
  /// are none. If the limit has become smaller, the rows unused for longest are left out. Counts go over to a
  /// sketch of another size; some may become higher.
  void restore(const Saved& saved, uint64_t update);

 private:
  static std::byte* bytes_of(const at::Tensor& tensor);
  static at::Tensor empty_rows(const at::Tensor& like, int64_t num_rows);
  /// The tensors of a batch of rows that make up a record: values, and state by row.
  static std::vector<at::Tensor> parts_of(const ShardOptimizer& batch);
  std::vector<std::byte> empty_record() const;
  at::Tensor initial_row(int64_t row) const;
  bool admits(int64_t row);
  at::Tensor empty_to_save(at::Tensor like, int64_t num_rows) const;
  [[noreturn]] void refuse_row(int64_t row) const;
  void check_piece(const RowPiece& piece, uint64_t last, uint64_t update) const;
  void restore_rows(SavedRows& rows, uint64_t update);
  void restore_piece(const RowPiece& piece, int64_t first);

  const FilteredRows filtered_;
  const RowGrowth growth_;
  const at::Tensor like_;
  const UpdateRule rule_;
  std::vector<std::string> state_names_;  // of the state by row
  int64_t row_bytes_;                     // of one of a record's parts
  const std::shared_ptr<RowDisk> disk_;
  std::unique_ptr<RowStore> store_;
  std::optional<RowCountSketch> sketch_;
  int64_t most_bytes_ = 0;
};

}  // namespace lockstep
