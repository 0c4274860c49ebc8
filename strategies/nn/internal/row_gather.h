#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parameter_server/variables/served_table.h"

namespace lockstep {

/// A lookup in the rows of a table.
struct RowGather {
  at::Tensor table;   ///< the parameter, of the whole table's shape
  at::Tensor values;  ///< of its rows, or of some
  at::Tensor places;  ///< for each id, which of the values: an int64 vector without gaps, on their device
  /// The numbers of the rows of which these are the values, ascending, on their device; undefined: of all.
  at::Tensor rows;
  at::Tensor offsets;    ///< where bags begin in the places, likewise; undefined: each is a result
  bool is_mean = false;  ///< of a bag, instead of the sum
};

/// The rows, or the bags' sums or means: a vector for each. The table's gradient by it is sparse, its rows
/// ascending and each there once, for which coalesced_rows() need not sort it. Backward throws
/// InvalidArgument where places were changed in place meanwhile, and with create_graph.
at::Tensor gather_rows(const RowGather& gather);

}  // namespace lockstep
