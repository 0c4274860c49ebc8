#pragma once

#include <torch/types.h>

#include <string>

#include "lockstep/training/formats/nested_value.h"

namespace lockstep {

/// Value in a checkpoint: None, a boolean, a number, a string or a tensor, or a list, tuple or dict of such
/// values.
///
/// Example:
///
///     StateValue::Dict state;
///     state.add("epoch", 3);
///     state.add("weight", tensor);
///     save_state_file("state.pt", state);  // Python: torch.load("state.pt", weights_only=True)
using StateValue = NestedValue<torch::Tensor>;

/// Writes a file for load_state_file() and Python's torch.load(weights_only=True). Tensors keep their
/// strides. Tensors that share all of their memory share it again after loading; others are written in full.
/// The file is written next to `path` and renamed, so that a failure leaves the old file intact. Blocks until
/// the bytes are on the disk.
///
/// Throws InvalidArgument for undefined, sparse and quantized tensors and for values nested deeper than 64,
/// and std::system_error if the system refuses to write.
void save_state_file(const std::string& path, const StateValue& state);

/// Reads such a file, or one of such values (state_dicts included) that Python's torch.save() wrote. The file
/// need not be trusted: nothing in it is executed, and checksums are checked. Tensors are on the CPU and
/// require no gradient; those that shared memory share it again. Tensors take no more memory than the file's
/// length, and all else some hundred times the size of the record that describes it, which is at most 16 MiB.
///
/// Throws CheckpointError naming the file if it is damaged or hostile or holds values of other kinds.
StateValue load_state_file(const std::string& path);

}  // namespace lockstep
