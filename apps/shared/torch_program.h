#pragma once

#include <string>

#include "lockstep/apps/shared/program.h"

namespace lockstep::apps {

/// Calls run_program() for a program that uses LibTorch: describe_failure() describes its errors.
int run_torch_program(const std::string& name, int argc, char** argv, const ProgramBody& body);

/// Prints every device that can be used here, one per line, and a summary.
void print_devices();

}  // namespace lockstep::apps
