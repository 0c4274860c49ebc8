#pragma once

#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Writes the content of a state file: save_state_file() says of what kind. Each part is named after the
/// tensor that it ends with. Throws as that does, and what the sink throws.
void write_state_archive(const StateValue& state, PartSink& sink);

/// Reads it: see load_state_file().
StateValue read_state_archive(const InputFile& file);

}  // namespace lockstep
