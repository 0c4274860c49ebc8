#pragma once

#include <exception>
#include <string>

namespace lockstep {
class ClusterResolver;
}

namespace lockstep::apps {

/// How the program ends because of an error.
struct Failure {
  int exit_code = 1;
  std::string message;  ///< one line
};

/// Returns the exit code and the message of an error; the exit code is 1 if ExitCode has none for it.
Failure describe_failure(const std::exception_ptr& error);
/// Like describe_failure(error), for a task of `cluster`: if there are several workers, the message begins
/// with which one it is, unless it already is about the workers. `cluster` may be null.
Failure describe_failure(const std::exception_ptr& error, const ClusterResolver* cluster);

}  // namespace lockstep::apps
