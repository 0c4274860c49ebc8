#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/training/formats/internal/pickle_value.h"

namespace lockstep {

/// Limit on a pickle's size; enough for about ten thousand tensors with their optimizer's state.
constexpr size_t kMaxPickleBytes = size_t{16} << 20;

/// Limit on the tensors in a pickle, and on their storages: a tensor takes more than 128 bytes of a pickle.
constexpr size_t kMaxPickledTensors = kMaxPickleBytes / 128;

/// Reads a pickle of plain values and tensors, such as torch.save() writes for state_dicts, without executing
/// anything. Accepts only the Python functions that make tensors, OrderedDicts and torch.Size, and builds
/// their values itself. Takes at most a few hundred times the size of `bytes` in memory, and at most about
/// 500 MB, whatever they contain. Shapes, strides and offsets are as the pickle says; they are not checked
/// against the storages' sizes. Throws CheckpointError naming `file` if the pickle is damaged or contains
/// anything else.
PickleValue read_pickle(std::string_view bytes, const std::string& file);

}  // namespace lockstep
