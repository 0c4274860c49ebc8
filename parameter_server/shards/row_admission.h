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
  InitialValues initial;  ///< what the table begins with
  RowRange rows;          ///< of the table
  bool operator==(const FilteredRows&) const = default;
};

/// Which of these rows are trained: counts the updates of each. For one thread at a time.
class RowAdmission {
 public:
  /// Throws InvalidArgument for a filter below 0 or beyond 2^31 - 1.
  explicit RowAdmission(const FilteredRows& filtered);

  const FilteredRows& filtered() const { return filtered_; }

  struct Noted {
    at::Tensor admitted;           ///< places among those given whose rows are to be stepped; undefined: all
    std::vector<int64_t> expired;  ///< rows that are to begin anew before that
  };
  /// Update number `version`, 1 or more, has these rows, numbered within the shard.
  Noted note(std::span<const int64_t> rows, uint64_t version);

  /// Whether the row is to begin anew, after `version` updates of the shard.
  bool is_expired(int64_t row, uint64_t version) const;
  /// What a row begins with; `like` as for make_values().
  at::Tensor initial_row(int64_t row, const at::Tensor& like) const;

  /// In its own memory, to be saved, and written over to restore.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

 private:
  const FilteredRows filtered_;
  at::Tensor updates_;  // of each row, int32, as far as they matter
  at::Tensor last_;     // the number of its last one, int64; undefined where rows live for ever
};

}  // namespace lockstep
