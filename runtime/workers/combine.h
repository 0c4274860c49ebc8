#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "lockstep/runtime/exchange/exchange_engine.h"

namespace lockstep {

/// Returns the function that reduces elements of a dtype. Throws InvalidArgument if there is none; see
/// ExchangeBackend::allreduce().
CombineFunction combine_function(c10d::ReduceOp::RedOpType op, at::ScalarType dtype);

}  // namespace lockstep
