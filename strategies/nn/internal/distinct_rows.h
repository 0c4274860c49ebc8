#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/parameter_server/variables/served_table.h"

namespace lockstep {

/// The different ones of some row numbers, which are 0 or more, on the CPU: a TableRows without values.
TableRows distinct_rows(const at::Tensor& rows);

}  // namespace lockstep
