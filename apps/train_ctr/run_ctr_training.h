#pragma once

#include <string>

#include "lockstep/apps/train_ctr/ctr_command_line.h"

namespace lockstep::apps {

/// Does this process's part of the training that `line` asks for: trains, or serves parameters or steps to
/// the processes that do. `resume` is the command that resumes it. Blocks until the training ends. Throws
/// Stopped if a signal ends it.
void run_ctr_training(CtrCommandLine line, const std::string& resume);

}  // namespace lockstep::apps
