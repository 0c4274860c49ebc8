#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/failure.h"

namespace lockstep::apps {

struct ProgramOptions {
  std::string name;  ///< the name that error messages begin with
  /// Turns an error into an exit code and a message.
  std::function<Failure(const std::exception_ptr&)> describe_error;
};

/// Does the work of a program and returns its exit code. `program` is argv[0], `arguments` are those after
/// it.
using ProgramBody = std::function<int(const std::string& program, const std::vector<std::string>& arguments)>;

/// Calls `body` and returns the exit code for main() to return. An error is printed to standard error as
/// "name: error: message". If the body throws Stopped, the exit code is the signal's, and nothing is printed.
/// If it throws a Failure, that is the error; otherwise describe_error() describes what it throws.
int run_program(const ProgramOptions& program, int argc, char** argv, const ProgramBody& body);

}  // namespace lockstep::apps
