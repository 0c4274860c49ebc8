#pragma once

#include <string>
#include <vector>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// A file of a checkpoint, found whole.
struct CheckpointContent {
  std::string path;
  std::string bytes;
};

/// The files that hold the state of the checkpoint in `folder`: state.pt, and besides it those that other
/// workers have written. Compares all of their parts with their checksums. Throws CheckpointError naming the
/// file and the part that is damaged, or missing.
std::vector<CheckpointContent> read_checkpoint(const std::string& folder);

/// The state that they hold together. Throws as load_state_file(), and CheckpointError where two files have
/// the same entry.
StateValue parse_checkpoint(const std::vector<CheckpointContent>& files);

/// The state in the checkpoint in `folder`, such as TrainingState::restore() takes. Throws as both.
StateValue load_checkpoint(const std::string& folder);

}  // namespace lockstep
