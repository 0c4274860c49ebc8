#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// A file of weights or training state cannot be used: it is missing, damaged, has another format, or belongs
/// to another model or optimizer. The message names the file and the tensor or field, with what was expected
/// and what was found. Lockstep's programs then exit with code 4.
///
/// Example:
///
///     try {
///       auto weights = load_weights("model.safetensors");
///     } catch (const lockstep::CheckpointError& error) {
///       return 4;  // the exit code of Lockstep's programs for checkpoints
///     }
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Formats the message as "<file>: <part>: expected <expected>, but got <actual>".
  CheckpointError(const std::string& file, const std::string& part, const std::string& expected,
                  const std::string& actual)
      : std::runtime_error(file + ": " + part + ": expected " + expected + ", but got " + actual) {}
};

/// The system or this version of Lockstep cannot read a file, which may nevertheless be intact.
///
/// Example:
///
///     try {
///       auto state = load_checkpoint("checkpoints/mnist");
///     } catch (const lockstep::CheckpointUnreadable& error) {
///       std::cerr << error.what() << '\n';  // do not delete the file
///     }
class CheckpointUnreadable : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

}  // namespace lockstep
