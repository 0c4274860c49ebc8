#pragma once

#include <string>

#include "lockstep/training/formats/internal/pickle_value.h"

namespace lockstep {

/// Returns a pickle that torch.load(weights_only=True) reads as the record data.pkl of its archive. Throws
/// InvalidArgument if values are nested deeper than kMaxNesting, if there are more than kMaxPickledValues, or
/// if a dtype is unknown to Python.
std::string write_pickle(const PickleValue& value);

}  // namespace lockstep
