#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

struct ProcessOptions {
  std::string folder = "";  ///< working folder; empty: this process's own
  std::map<std::string, std::string> variables =
      {};                     ///< added to the environment; an empty value removes one
  uint64_t memory_limit = 0;  ///< bytes of address space; 0: none
  bool is_terminal = false;   ///< standard error is a terminal of 100 columns
  int signal = 0;             ///< sent once when `signal_after` has been printed
  std::string signal_after = "";
  double timeout_seconds = 120;  ///< then it is killed, with exit code -1
};

struct ProcessResult {
  int exit_code = -1;  ///< 128 + signal if one ended it
  std::string out;
  std::string error;
};

/// Runs a program to its end.
ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments,
                          const ProcessOptions& options = {});

}  // namespace lockstep::testing
