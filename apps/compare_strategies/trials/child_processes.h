#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::apps {

/// A process that was killed by a signal has this value plus the signal's number as its exit code.
constexpr int kExitBySignal = 128;

struct ChildCommand {
  std::vector<std::string> arguments;  ///< path of the program first
  /// Additions to this process's environment; an empty value removes a variable.
  std::map<std::string, std::string> variables;
  std::string output;  ///< file for standard output and standard error
  int inherited = -1;  ///< descriptor that the child inherits under the same number; -1: none
};

struct ChildLimits {
  std::chrono::milliseconds timeout{std::chrono::hours(1)};
  /// Time from the first failure until the other children are killed, so that they can still report errors.
  std::chrono::milliseconds grace{std::chrono::seconds(10)};
  std::function<bool()> is_cancelled = [] { return false; };  ///< polled many times per second
};

/// How a child ended.
struct ChildEnd {
  int exit_code = 0;       ///< kExitBySignal plus the number if a signal ended it; 1 if unknown
  bool is_killed = false;  ///< killed by us after another child's failure, the timeout or a cancellation
};

struct ChildEnds {
  std::vector<ChildEnd> ends;  ///< in the order of the commands
  bool has_timed_out = false;
  bool is_cancelled = false;
  int first_failed = -1;  ///< first child that ended by itself with a nonzero exit code; -1: none
};

/// Runs all commands concurrently and blocks until each has ended. No child outlives the call or, on Linux,
/// this process, however it ends. Terminal signals reach only this process. SIGCHLD has its default action
/// meanwhile. If a process cannot be started, throws std::system_error once those already started have ended.
/// The calling thread must not end before the children do.
ChildEnds run_children(const std::vector<ChildCommand>& commands, const ChildLimits& limits);

}  // namespace lockstep::apps
