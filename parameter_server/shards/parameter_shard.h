#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/applied_pushes.h"
#include "lockstep/parameter_server/shards/growing_rows.h"
#include "lockstep/parameter_server/shards/row_admission.h"
#include "lockstep/parameter_server/shards/shard_optimizer.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Data that accompanies a gradient.
struct PushedStep {
  PushId id;
  double lr = 0;
  uint64_t version = 0;  ///< of the values that the gradient was computed with
};

enum class PushOutcome : uint8_t {
  kApplied = 0,
  kRepeated = 1,  ///< applied before
  /// Not applied: the values that its gradient was computed with are lost because the server restarted and
  /// resumed from earlier ones.
  kOutdated = 2,
};

/// Result of a push.
struct PushResult {
  PushOutcome outcome = PushOutcome::kRepeated;
  uint64_t version = 0;    ///< of the values after it
  uint64_t staleness = 0;  ///< number of steps between the pull of the values and this push
};

/// A shard of a variable (or a whole variable that is not split) on a parameter server: values, optimizer
/// state, and the pushes that were applied. Thread-safe; calls wait for one another.
class ParameterShard {
 public:
  /// Copies `values`. Set `filtered` for a table whose rows are trained as its filter says. With `growth`,
  /// which requires `filtered`, `values` only gives the shape and dtype of rows, and there are none at first;
  /// `disk` is for such rows beyond the limit. Throws as ShardOptimizer, RowAdmission and GrowingRows do; the
  /// message begins with the name.
  ParameterShard(std::string name, const at::Tensor& values, const UpdateRule& rule,
                 const std::optional<FilteredRows>& filtered = std::nullopt,
                 const std::optional<RowGrowth>& growth = std::nullopt,
                 const std::shared_ptr<RowDisk>& disk = nullptr);

  const std::string& name() const { return name_; }
  /// Throws InvalidArgument naming the shard if its values have another shape or dtype, or if its rule,
  /// filter or growth differs.
  void check_alike(at::IntArrayRef sizes, at::ScalarType dtype, const UpdateRule& rule,
                   const std::optional<FilteredRows>& filtered,
                   const std::optional<RowGrowth>& growth = std::nullopt) const;
  int64_t num_rows() const { return num_rows_; }
  const UpdateRule& rule() const { return rule_; }
  const std::optional<FilteredRows>& filtered() const { return filtered_; }
  const std::optional<RowGrowth>& growth() const { return growth_; }
  /// Returns the number and the bytes of the rows that exist, in a table that grows; otherwise of all rows.
  struct Extent {
    int64_t rows = 0;
    int64_t bytes = 0;           ///< of memory
    int64_t rows_in_memory = 0;  ///< the others are on the disk
    int64_t most_bytes = 0;      ///< largest number of `bytes` so far
    int64_t disk_bytes = 0;      ///< of the tables on the disk, which also hold some earlier values
  };
  Extent extent() const;

  struct Pulled {
    at::Tensor values;
    uint64_t version = 0;  ///< number of steps that the values include
  };
  /// Returns a copy of the values. Throws InvalidArgument for a table that grows.
  Pulled pull() const;
  /// Returns a copy of these rows: a contiguous int64 vector in any order, which may repeat rows. Throws
  /// InvalidArgument naming the shard if `rows` is anything else.
  Pulled pull_rows(const at::Tensor& rows) const;

  /// Steps by a gradient of the whole shard unless this push was applied before or is outdated. Throws as
  /// ShardOptimizer::step() does, and InvalidArgument if the shard has a filter; the shard is unchanged then.
  PushResult push(const at::Tensor& gradient, const PushedStep& step);
  /// Same, by gradients of some rows; see ShardOptimizer::step_rows().
  PushResult push_rows(const at::Tensor& rows, const at::Tensor& gradients, const PushedStep& step);

  /// See AppliedPushes.
  void forget_before(uint64_t closure);

  /// A consistent copy of the whole state.
  struct Saved {
    at::Tensor values;
    std::vector<std::pair<std::string, at::Tensor>> optimizer;
    uint64_t version = 0;
    std::vector<PushId> pushes;
    /// Of a table that grows, if set: its rows, which restore() reads in pieces. `values` and `optimizer`
    /// have none then.
    std::shared_ptr<SavedRows> rows{};
  };
  Saved save() const;
  /// Resumes from the state that another shard of the same shape and rule saved. Throws InvalidArgument
  /// naming the shard and the first part that differs; the shard is unchanged then, but if it reads rows in
  /// pieces, it has none.
  void restore(const Saved& saved);

 private:
  template <typename Step>
  PushResult apply(const PushedStep& step, const Step& change);
  void step_admitted(const at::Tensor& rows, const at::Tensor& gradients, double lr)
      LOCKSTEP_REQUIRES(mutex_);
  void show_expired_anew(const at::Tensor& rows, const at::Tensor& copies) const LOCKSTEP_REQUIRES(mutex_);
  std::vector<std::pair<std::string, at::Tensor>> state() const LOCKSTEP_REQUIRES(mutex_);
  void restore_growing(const Saved& saved) LOCKSTEP_REQUIRES(mutex_);
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const;

  const std::string name_;
  const int64_t num_rows_;
  const UpdateRule rule_;
  const std::optional<FilteredRows> filtered_;
  const std::optional<RowGrowth> growth_;
  mutable Mutex mutex_;
  ShardOptimizer optimizer_
      LOCKSTEP_GUARDED_BY(mutex_);  // of a table that grows: no rows, the count of steps
  std::optional<RowAdmission> admission_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<GrowingRows> growing_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t version_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  AppliedPushes pushes_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
