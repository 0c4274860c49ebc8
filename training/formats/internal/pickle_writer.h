#pragma once

#include <string>

#include "lockstep/training/formats/internal/pickle_value.h"

namespace lockstep {

/// A pickle that torch.load(weights_only=True) reads, as the record data.pkl of its archive. Throws
/// InvalidArgument for values nested deeper than kMaxNesting and for a dtype that Python does not know.
std::string write_pickle(const PickleValue& value);

}  // namespace lockstep
