#include "lockstep/tests/support/process_runner.h"

#include <poll.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace lockstep::testing {
namespace {

struct Channel {
  int read = -1;
  int write = -1;
};

Channel make_pipe() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  return {ends[0], ends[1]};
}

Channel make_terminal() {
  winsize size{};
  size.ws_col = 100;
  size.ws_row = 24;
  Channel channel;
  if (openpty(&channel.read, &channel.write, nullptr, nullptr, &size) != 0)
    throw std::runtime_error("openpty failed");
  return channel;
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options) {
  constexpr int kCannotRun = 127;
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(kCannotRun);
  for (const auto& [name, value] : options.variables) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (options.memory_limit > 0) {
    const rlimit limit{options.memory_limit, options.memory_limit};
    setrlimit(RLIMIT_AS, &limit);
  }
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(kCannotRun);
}

/// Appends what can be read to `text`; returns false at the end.
bool drain(int file, std::string& text) {
  char bytes[4096];
  const ssize_t count = read(file, bytes, sizeof(bytes));
  if (count <= 0) return false;  // a closed terminal gives an error rather than an end
  text.append(bytes, static_cast<size_t>(count));
  return true;
}

}  // namespace

ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments,
                          const ProcessOptions& options) {
  const Channel out = make_pipe();
  const Channel error = options.is_terminal ? make_terminal() : make_pipe();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(out.write, STDOUT_FILENO);
    dup2(error.write, STDERR_FILENO);
    for (const int file : {out.read, out.write, error.read, error.write}) close(file);
    become(program, arguments, options);
  }
  close(out.write);
  close(error.write);

  ProcessResult result;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.timeout_seconds);
  bool is_signalled = false;
  bool is_killed = false;
  pollfd files[] = {{out.read, POLLIN, 0}, {error.read, POLLIN, 0}};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    if (poll(files, 2, 100) > 0) {
      if (files[0].revents != 0 && !drain(out.read, result.out)) files[0].fd = -1;
      if (files[1].revents != 0 && !drain(error.read, result.error)) files[1].fd = -1;
    }
    if (options.signal != 0 && !is_signalled && result.out.find(options.signal_after) != std::string::npos) {
      is_signalled = kill(child, options.signal) == 0;
    }
    if (!is_killed && std::chrono::steady_clock::now() > end) is_killed = kill(child, SIGKILL) == 0;
  }
  close(out.read);
  close(error.read);
  int status = 0;
  waitpid(child, &status, 0);
  if (!is_killed) result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace lockstep::testing
