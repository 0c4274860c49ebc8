#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/training/formats/internal/pickle_nodes.h"

namespace lockstep {

/// The value at `root` with all that it refers to, each as often as it is referred to. Throws CheckpointError
/// naming `file` where that makes a multiple of the pickle's bytes, for values that hold themselves or are
/// nested deeper than kMaxNesting, and for what is no plain value and no tensor.
PickleValue pickle_tree(const std::vector<PickleNode>& nodes, PicklePlace root, size_t pickle_bytes,
                        const std::string& file);

}  // namespace lockstep
