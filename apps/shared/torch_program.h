#pragma once

#include <string>

#include "lockstep/apps/shared/command_line/action.h"
#include "lockstep/apps/shared/program.h"

namespace lockstep::apps {

/// Calls run_program() for a program that uses LibTorch: describe_failure() describes its errors.
int run_torch_program(const std::string& name, int argc, char** argv, const ProgramBody& body);

/// Prints what an action other than kTrain asks for: `help`, `version` with that of LibTorch, or the devices
/// that can be used here, those of load_device_plugin() included. Returns the exit code.
int answer(Action action, const std::string& version, const std::string& help);

}  // namespace lockstep::apps
