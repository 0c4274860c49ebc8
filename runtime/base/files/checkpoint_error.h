#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// A file of weights or of training state that cannot be used: missing, damaged, of another format, or of
/// another model or optimizer. The message names the file, and the tensor or field with what was expected and
/// what was found. Lockstep's programs end with exit code 4 on it.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// "<file>: <part>: expected <expected>, but got <actual>".
  CheckpointError(const std::string& file, const std::string& part, const std::string& expected,
                  const std::string& actual)
      : std::runtime_error(file + ": " + part + ": expected " + expected + ", but got " + actual) {}
};

/// The system or this version of Lockstep cannot read a file, which may be whole all the same.
class CheckpointUnreadable : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace lockstep
