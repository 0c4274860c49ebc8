#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/training/formats/internal/pickle_value.h"

namespace lockstep {

/// Of a pickle; some ten thousand tensors with their optimizer's state.
constexpr size_t kMaxPickleBytes = size_t{16} << 20;

/// Reads a pickle of plain values and tensors, such as torch.save() makes of state_dicts, without running
/// anything: of Python's functions it knows those alone that make tensors, OrderedDicts and torch.Size, and
/// makes values of them itself. Whatever the bytes are, it takes at most some hundred times their size in
/// memory. Shapes, strides and offsets of tensors are as the pickle says; their storages' sizes are not
/// checked. Throws CheckpointError naming `file` for what is damaged or anything else.
PickleValue read_pickle(std::string_view bytes, const std::string& file);

}  // namespace lockstep
