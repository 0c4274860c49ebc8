#pragma once

#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Writes the content of a state file in the format of save_state_file(). Each part is named after the tensor
/// that it ends with. Throws as save_state_file() does, and what the sink throws.
void write_state_archive(const StateValue& state, PartSink& sink);

/// Reads such content; see load_state_file().
StateValue read_state_archive(const InputFile& file);

}  // namespace lockstep
