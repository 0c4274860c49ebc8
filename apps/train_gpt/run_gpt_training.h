#pragma once

#include <string>

#include "lockstep/apps/train_gpt/options/gpt_command_line.h"

namespace lockstep::apps {

/// Trains as the command line asks and blocks until the training ends. `resume` is the command that resumes
/// it. Throws Stopped if a signal ends the training, and Failure if an error does; the other workers are told
/// of both.
void run_gpt_training(const GptCommandLine& line, const std::string& resume);

}  // namespace lockstep::apps
