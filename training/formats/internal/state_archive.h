#pragma once

#include <string>

#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/training/formats/internal/tensor_maker.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Writes the content of a state file in the format of save_state_file(). Each part is named after the tensor
/// that it ends with. Calls `make` for each tensor of the device "meta", in the order in the state, when its
/// values are to be written, and keeps none of the results. Throws as save_state_file() does, and what the
/// sink and `make` throw. Without `has_checksums`, tensors are read only once, by the sink.
void write_state_archive(const StateValue& state, PartSink& sink, const TensorMaker& make = {},
                         bool has_checksums = true);

/// Writes a state file with such content, as save_state_file() does.
void save_state_archive(const std::string& path, const StateValue& state, const TensorMaker& make);

/// Reads such content; see load_state_file().
StateValue read_state_archive(const InputFile& file);

}  // namespace lockstep
