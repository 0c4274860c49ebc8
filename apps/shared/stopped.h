#pragma once

#include <string>

namespace lockstep::apps {

/// A signal has stopped the program. It is thrown, so that a strategy tells the other workers as it is
/// destroyed. run_program() returns the signal's exit code.
struct Stopped {
  int signal;             ///< SIGINT or SIGTERM
  bool is_saved = false;  ///< the same command resumes the training where it stopped
};

/// Returns "SIGINT" or "SIGTERM".
std::string signal_name(int signal);

/// Returns the beginning of the message that a stopped program logs: "stopped by SIGINT".
std::string stopped_text(int signal);

/// Returns the message that tells where a stopped training is saved; `command` resumes it.
std::string saved_text(const std::string& folder, const std::string& command);

}  // namespace lockstep::apps
