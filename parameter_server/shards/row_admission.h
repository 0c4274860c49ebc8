#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/parameter_server/variables/row_filter.h"

namespace lockstep {

/// Some rows of a table that has a filter.
struct FilteredRows {
  RowFilter filter;
  InitialValues initial;  ///< initial values of the table
  RowRange rows;          ///< rows of the table
  bool operator==(const FilteredRows&) const = default;
};

/// Decides which rows are trained by counting the updates of each. Not thread-safe.
class RowAdmission {
 public:
  /// Throws InvalidArgument if a number of the filter is below 0 or above 2^31 - 1.
  explicit RowAdmission(const FilteredRows& filtered);

  const FilteredRows& filtered() const { return filtered_; }

  struct Noted {
    at::Tensor admitted;           ///< indices into the given rows of those to step; undefined: all
    std::vector<int64_t> expired;  ///< rows to reset to their initial values before the step
  };
  /// Records update number `version` (1 or more) of these rows, numbered within the shard.
  Noted note(std::span<const int64_t> rows, uint64_t version);

  /// Returns whether the row is to be reset, after `version` updates of the shard.
  bool is_expired(int64_t row, uint64_t version) const;
  /// Returns the initial values of a row; `like` as for make_values().
  at::Tensor initial_row(int64_t row, const at::Tensor& like) const;

  /// Returns views of the internal tensors; read them to save, write to them to restore.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

 private:
  const FilteredRows filtered_;
  at::Tensor updates_;  // number of each row's updates, counted up to the limit, int32
  at::Tensor last_;     // number of each row's last update, int64; undefined if rows never expire
};

}  // namespace lockstep
