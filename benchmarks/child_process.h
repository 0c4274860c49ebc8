#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {

struct Command {
  /// The program, looked up in PATH, and its arguments.
  std::vector<std::string> arguments;
  /// Set on top of this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
};

/// A child that is spoken to line by line over its standard input and output; its errors go where ours go.
class ChildProcess {
 public:
  /// Throws std::runtime_error naming the program if it cannot be started.
  explicit ChildProcess(const Command& command);
  /// Closes the child's input and kills it if it has not done so 10 s later.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write_line(const std::string& line);
  /// The child's sign to end; nothing can be written any more.
  void close_input();
  /// Blocks for one line, without its end. Throws std::runtime_error naming the program if the child ends
  /// first or `timeout` passes.
  std::string read_line(std::chrono::seconds timeout);

 private:
  std::string name_;
  pid_t process_ = -1;
  int input_ = -1;   // we write
  int output_ = -1;  // we read
  std::string received_;
};

}  // namespace lockstep::benchmarks
