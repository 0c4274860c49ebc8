#include "lockstep/apps/compare_strategies/trials/child_processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>
#include <thread>

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotStart = 127;
constexpr int kUnknownEnd = 1;
constexpr std::chrono::milliseconds kPause{10};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (!variables.contains(variable.substr(0, variable.find('=')))) merged.push_back(variable);
  }
  for (const auto& [name, value] : variables) {
    if (!value.empty()) merged.push_back(std::string(name).append("=").append(value));
  }
  return merged;
}

std::vector<char*> texts_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Everything a child needs, prepared before the fork: nothing may allocate between fork and exec.
struct Launch {
  explicit Launch(const ChildCommand& command)
      : arguments(command.arguments),
        environment(merged_environment(command.variables)),
        argument_texts(texts_of(arguments)),
        environment_texts(texts_of(environment)),
        output(command.output),
        inherited(command.inherited) {}

  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<char*> argument_texts;
  std::vector<char*> environment_texts;
  std::string output;
  int inherited;
};

[[noreturn]] void become(const Launch& launch, pid_t parent) {
  // The child dies with its parent, which may have ended already.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(kCannotStart);
  setpgid(0, 0);
  const int output = open(launch.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (output < 0 || input < 0) _exit(kCannotStart);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (launch.inherited >= 0) fcntl(launch.inherited, F_SETFD, 0);
  execve(launch.argument_texts[0], launch.argument_texts.data(), launch.environment_texts.data());
  constexpr std::string_view kMessage = "the program could not be started\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(kCannotStart);
}

pid_t start(const ChildCommand& command) {
  const Launch launch(command);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(launch, parent);
  if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot start a process");
  return child;
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitBySignal + WTERMSIG(status);
}

/// Restores SIGCHLD's default for a while: if a program ignores SIGCHLD, its children's exit codes are lost.
class ChildSignalGuard {
 public:
  ChildSignalGuard() {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigemptyset(&action.sa_mask);
    sigaction(SIGCHLD, &action, &before_);
  }
  ~ChildSignalGuard() { sigaction(SIGCHLD, &before_, nullptr); }
  ChildSignalGuard(const ChildSignalGuard&) = delete;
  ChildSignalGuard& operator=(const ChildSignalGuard&) = delete;

 private:
  struct sigaction before_ {};
};

/// Running children. The destructor kills them and waits for them.
class Children {
 public:
  explicit Children(const std::vector<ChildCommand>& commands) : ends_(commands.size()) {
    try {
      for (const auto& command : commands) processes_.push_back(start(command));
    } catch (...) {
      end();
      throw;
    }
  }
  ~Children() { end(); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Records which children have ended.
  void look() {
    for (size_t i = 0; i < processes_.size(); ++i) {
      int status = 0;
      if (processes_[i] < 0) continue;
      const pid_t ended = waitpid(processes_[i], &status, WNOHANG);
      const bool is_lost = ended < 0 && errno == ECHILD;  // its exit code is unknown
      if (ended != processes_[i] && !is_lost) continue;
      processes_[i] = -1;
      ends_[i].exit_code = is_lost ? kUnknownEnd : exit_code_of(status);
      if (ends_[i].exit_code != 0 && !ends_[i].is_killed && first_failed_ < 0)
        first_failed_ = static_cast<int>(i);
    }
  }

  bool are_running() const {
    return std::any_of(processes_.begin(), processes_.end(), [](pid_t process) { return process >= 0; });
  }

  void kill_all() {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i] < 0) continue;
      ends_[i].is_killed = true;
      kill(processes_[i], SIGKILL);
    }
  }

  int first_failed() const { return first_failed_; }
  const std::vector<ChildEnd>& ends() const { return ends_; }

 private:
  void end() {
    kill_all();
    for (const pid_t process : processes_) {
      if (process >= 0) waitpid(process, nullptr, 0);
    }
  }

  std::vector<pid_t> processes_;  // -1 if ended
  std::vector<ChildEnd> ends_;
  int first_failed_ = -1;
};

}  // namespace

ChildEnds run_children(const std::vector<ChildCommand>& commands, const ChildLimits& limits) {
  const ChildSignalGuard child_signal;
  Children children(commands);
  ChildEnds result;
  auto deadline = Clock::now() + limits.timeout;
  bool has_failed = false;
  while (true) {
    children.look();
    if (!children.are_running()) break;
    if (!has_failed && children.first_failed() >= 0) {
      has_failed = true;
      deadline = std::min(deadline, Clock::now() + limits.grace);
    }
    if (limits.is_cancelled()) result.is_cancelled = true;
    if (!result.is_cancelled && Clock::now() >= deadline) result.has_timed_out = !has_failed;
    if (result.is_cancelled || Clock::now() >= deadline) children.kill_all();
    std::this_thread::sleep_for(kPause);
  }
  result.is_cancelled = result.is_cancelled || limits.is_cancelled();
  result.first_failed = children.first_failed();
  result.ends = children.ends();
  return result;
}

}  // namespace lockstep::apps
