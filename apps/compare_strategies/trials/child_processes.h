#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::apps {

/// The exit code of a process that a signal ended is this and the signal's number.
constexpr int kExitBySignal = 128;

struct ChildCommand {
  std::vector<std::string> arguments;  ///< the program's path first
  /// On top of this process's environment; an empty value takes a variable away.
  std::map<std::string, std::string> variables;
  std::string output;  ///< file that its standard output and error go to
  int inherited = -1;  ///< a descriptor that it gets under the same number; -1: none
};

struct ChildLimits {
  std::chrono::milliseconds timeout{std::chrono::hours(1)};
  /// From the first child that failed to when the others are killed: they may yet say something of their own.
  std::chrono::milliseconds grace{std::chrono::seconds(10)};
  std::function<bool()> is_cancelled = [] { return false; };  ///< asked many times a second
};

/// How a child ended.
struct ChildEnd {
  int exit_code = 0;       ///< kExitBySignal and its number where a signal ended it, 1 where nobody can say
  bool is_killed = false;  ///< by us, because of the others, the timeout or a cancellation
};

struct ChildEnds {
  std::vector<ChildEnd> ends;  ///< in the order of the commands
  bool has_timed_out = false;
  bool is_cancelled = false;
  int first_failed = -1;  ///< which ended first with an exit code other than 0, by itself; -1: none
};

/// Runs all commands at the same time, and blocks until each has ended. None outlives the call, nor, on
/// Linux, this process, however that ends; a terminal's signals reach this process alone. Meanwhile SIGCHLD
/// has its default action. Throws std::system_error where a process cannot be started, once those that were
/// have ended. Called by a thread that stays.
ChildEnds run_children(const std::vector<ChildCommand>& commands, const ChildLimits& limits);

}  // namespace lockstep::apps
