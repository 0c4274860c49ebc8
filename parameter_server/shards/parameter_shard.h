#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/shards/applied_pushes.h"
#include "lockstep/parameter_server/shards/row_admission.h"
#include "lockstep/parameter_server/shards/shard_optimizer.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// What comes with a gradient.
struct PushedStep {
  PushId id;
  double lr = 0;
  uint64_t version = 0;  ///< of the values that the gradient was computed with
};

enum class PushOutcome : uint8_t {
  kApplied = 0,
  kRepeated = 1,  ///< it was applied before
  /// It is not: the values that its gradient was computed with are lost, as its server was started again and
  /// went on from earlier ones.
  kOutdated = 2,
};

/// What became of a push.
struct PushResult {
  PushOutcome outcome = PushOutcome::kRepeated;
  uint64_t version = 0;    ///< of the values after it
  uint64_t staleness = 0;  ///< how many steps came between the values' pull and this one
};

/// A variable's shard, or a variable that is not cut, as a parameter server holds it: values, the state of
/// their optimizer, and which pushes they were stepped by. Thread-safe; calls wait for each other.
class ParameterShard {
 public:
  /// Copies `values`; with `filtered`, of a table whose rows are trained as its filter says. Throws as
  /// ShardOptimizer and RowAdmission, beginning with the name.
  ParameterShard(std::string name, const at::Tensor& values, const UpdateRule& rule,
                 const std::optional<FilteredRows>& filtered = std::nullopt);

  const std::string& name() const { return name_; }
  /// Throws InvalidArgument naming the shard where its values are of another shape or dtype, or its rule or
  /// filter is another.
  void check_alike(at::IntArrayRef sizes, at::ScalarType dtype, const UpdateRule& rule,
                   const std::optional<FilteredRows>& filtered) const;
  int64_t num_rows() const { return num_rows_; }
  const UpdateRule& rule() const { return rule_; }
  const std::optional<FilteredRows>& filtered() const { return filtered_; }

  struct Pulled {
    at::Tensor values;
    uint64_t version = 0;  ///< steps that are in the values
  };
  /// A copy.
  Pulled pull() const;
  /// A copy of these rows, a contiguous int64 vector in any order, which may name a row twice. Throws
  /// InvalidArgument naming the shard for anything else.
  Pulled pull_rows(const at::Tensor& rows) const;

  /// Steps by a gradient of the whole shard, unless this push was applied before or is outdated. Throws as
  /// ShardOptimizer::step(), and InvalidArgument where it has a filter; nothing is changed then.
  PushResult push(const at::Tensor& gradient, const PushedStep& step);
  /// The same by gradients of some rows; see ShardOptimizer::step_rows().
  PushResult push_rows(const at::Tensor& rows, const at::Tensor& gradients, const PushedStep& step);

  /// See AppliedPushes.
  void forget_before(uint64_t closure);

  /// A copy of all there is, of one moment.
  struct Saved {
    at::Tensor values;
    std::vector<std::pair<std::string, at::Tensor>> optimizer;
    uint64_t version = 0;
    std::vector<PushId> pushes;
  };
  Saved save() const;
  /// Goes on from what another shard of the same shape and rule saved. Throws InvalidArgument naming the
  /// shard and the first part that differs; nothing is changed then.
  void restore(const Saved& saved);

 private:
  template <typename Step>
  PushResult apply(const PushedStep& step, const Step& change);
  void step_admitted(const at::Tensor& rows, const at::Tensor& gradients, double lr)
      LOCKSTEP_REQUIRES(mutex_);
  void show_expired_anew(const at::Tensor& rows, const at::Tensor& copies) const LOCKSTEP_REQUIRES(mutex_);
  std::vector<std::pair<std::string, at::Tensor>> state() const LOCKSTEP_REQUIRES(mutex_);
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const;

  const std::string name_;
  const int64_t num_rows_;
  const UpdateRule rule_;
  const std::optional<FilteredRows> filtered_;
  mutable Mutex mutex_;
  ShardOptimizer optimizer_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<RowAdmission> admission_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t version_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  AppliedPushes pushes_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
