#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parameter_server/variables/served_table.h"

namespace lockstep {

/// Returns the distinct row numbers among `rows`, which must be nonnegative and on the CPU, as TableRows
/// without values.
TableRows distinct_rows(const at::Tensor& rows);

}  // namespace lockstep
