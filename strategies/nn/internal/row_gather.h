#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parameter_server/variables/served_table.h"

namespace lockstep {

/// A lookup of rows in a table.
struct RowGather {
  at::Tensor table;    ///< parameter, with the whole table's shape
  at::Tensor values;   ///< values of all or some of its rows
  at::Tensor indices;  ///< for each id, an index into `values`: a contiguous int64 vector on their device
  /// Ascending numbers of the rows that `values` holds, on their device; undefined: all rows.
  at::Tensor rows;
  at::Tensor offsets;    ///< starts of the bags in `indices`, also contiguous int64; undefined: no bags
  bool is_mean = false;  ///< average each bag instead of summing it
};

/// Returns one vector per id or bag: the row, or the sum or mean of the bag's rows. The table's gradient is
/// sparse, with ascending rows without repetitions, so that coalesced_rows() need not sort it. Backward
/// throws InvalidArgument if the indices were changed in place in the meantime, and with create_graph.
at::Tensor gather_rows(const RowGather& gather);

}  // namespace lockstep
