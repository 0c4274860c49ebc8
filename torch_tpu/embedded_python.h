#pragma once

#include <string>

namespace lockstep::torch_tpu {

/// A Python interpreter in this process, loaded from a shared library while the program runs, so that the
/// program links no Python. It cannot be unloaded.
///
/// Example:
///
///     const EmbeddedPython python("libpython3.11.so.1.0");
///     python.run("result = str(1 + 1)");  // returns "2"
class EmbeddedPython {
 public:
  /// Loads `library`, a path or a name that the dynamic loader finds, with all of its symbols visible, since
  /// extension modules need them. Starts an interpreter if this process has none yet, without Python's signal
  /// handlers; afterwards no thread holds its lock. Throws InvalidArgument naming the library if it cannot be
  /// loaded or has no Python. If Python does not find its own modules, it ends the process: set PYTHONHOME.
  explicit EmbeddedPython(const std::string& library);

  /// Runs statements in __main__ and returns the text that they put into the variable `result`. Blocks until
  /// they end, and while other threads hold Python's lock. Throws std::runtime_error with Python's error.
  std::string run(const std::string& code) const;

 private:
  template <typename Function>
  Function find(const char* name) const;

  std::string library_;
  void* handle_ = nullptr;
};

}  // namespace lockstep::torch_tpu
