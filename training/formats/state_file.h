#pragma once

#include <torch/types.h>

#include <string>

#include "lockstep/training/formats/nested_value.h"

namespace lockstep {

/// What a checkpoint holds: None, truth values, numbers, strings and tensors, in lists, tuples and dicts.
///
///     StateValue::Dict state;
///     state.add("epoch", 3);
///     state.add("weight", tensor);
///     save_state_file("state.pt", state);       // Python: torch.load("state.pt", weights_only=True)
using StateValue = NestedValue<torch::Tensor>;

/// Writes a file that Python's torch.load(weights_only=True) and load_state_file() read. Tensors keep their
/// strides, and those that share all of their memory share it again when they are read; others are written in
/// full. The file is written beside `path` and renamed, so that a failure leaves what was there. Blocks until
/// the bytes are on the disk.
///
/// Throws InvalidArgument for undefined, sparse and quantised tensors and for values nested deeper than 64,
/// and std::system_error where the system refuses to write.
void save_state_file(const std::string& path, const StateValue& state);

/// Reads such a file, or one that Python's torch.save() wrote of such values, state_dicts included, from
/// whatever source: nothing in it is run. Tensors lie on the CPU and require no gradient; those that shared
/// memory share it. No more is allocated for tensors than the file is long, and for the rest some hundred
/// times the record that describes them, of at most 16 MiB. Checksums are compared.
///
/// Throws CheckpointError naming the file for a damaged or hostile one and for values of other kinds.
StateValue load_state_file(const std::string& path);

}  // namespace lockstep
