#pragma once

#include <exception>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
class ClusterResolver;
}

namespace lockstep::apps {

/// How the program ends because of an error.
struct Failure {
  int exit_code = 1;
  std::string message;  ///< one line
};

/// Sorts an exception into the exit codes; 1 for one that none of them names.
Failure describe_failure(const std::exception_ptr& error);
/// The same in a task of `cluster`: the message begins with which of several workers it is, unless it is of
/// the workers anyway. Null: there are no others.
Failure describe_failure(const std::exception_ptr& error, const ClusterResolver* cluster);

}  // namespace lockstep::apps
