#pragma once

#include <string>
#include <vector>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// A file of a checkpoint whose checksums were correct.
struct CheckpointContent {
  std::string path;
  std::string bytes;
};

/// Reads the files with the state of the checkpoint in `folder`: state.pt, and those of the other workers if
/// they wrote any. Checks the checksums of all parts. Throws CheckpointError naming the file and the part
/// that is damaged or missing.
std::vector<CheckpointContent> read_checkpoint(const std::string& folder);

/// Returns the state in these files. Throws the errors of load_state_file(), and CheckpointError if two files
/// have the same entry.
StateValue parse_checkpoint(const std::vector<CheckpointContent>& files);

/// Loads the state of the checkpoint in `folder`, for example for TrainingState::restore(). Throws as
/// read_checkpoint() and parse_checkpoint() do.
StateValue load_checkpoint(const std::string& folder);

}  // namespace lockstep
