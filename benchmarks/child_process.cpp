#include "lockstep/benchmarks/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{10};

std::runtime_error error_of(const std::string& name, const std::string& what) {
  return std::runtime_error("[" + name + "] " + what);
}

std::array<int, 2> make_pipe(const std::string& name) {
  std::array<int, 2> ends{};
  // Another child must not inherit them: it would keep this one's input open.
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw error_of(name, "no pipe: " + std::generic_category().message(errno));
  return ends;
}

bool sets(const std::string& variable, const std::string& name) {
  return variable.size() > name.size() && variable[name.size()] == '=' &&
         variable.compare(0, name.size(), name) == 0;
}

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const bool is_changed = std::any_of(changes.begin(), changes.end(),
                                        [&](const auto& change) { return sets(variable, change.first); });
    if (!is_changed) variables.push_back(variable);
  }
  for (const auto& [name, value] : changes) variables.push_back(std::string(name).append("=").append(value));
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildProcess::ChildProcess(const Command& command) : name_(command.arguments.at(0)) {
  const auto input = make_pipe(name_);
  const auto output = make_pipe(name_);
  auto arguments = command.arguments;
  auto environment = merged_environment(command.environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  const int error = posix_spawnp(&process_, name_.c_str(), &actions, nullptr, pointers_to(arguments).data(),
                                 pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  input_ = input[1];
  output_ = output[0];
  if (error == 0) return;
  close(input_);
  close(output_);
  throw error_of(
      name_, "expected a program that can be started, but got: " + std::generic_category().message(error));
}

ChildProcess::~ChildProcess() {
  close_input();
  const auto deadline = Clock::now() + kGrace;
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  close(output_);
}

void ChildProcess::close_input() {
  if (input_ != -1) close(std::exchange(input_, -1));
}

void ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  // A request is far shorter than what a pipe takes at once.
  if (write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw error_of(name_, "no longer listens: " + std::generic_category().message(errno));
}

std::string ChildProcess::read_line(std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waiting{output_, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready == 0) throw error_of(name_, "gave no answer within " + std::to_string(timeout.count()) + " s");
    std::array<char, 4096> buffer{};
    const ssize_t count = ready < 0 ? -1 : read(output_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw error_of(name_, "ended before it answered; what it printed says why");
    received_.append(buffer.data(), static_cast<size_t>(count));
  }
}

}  // namespace lockstep::benchmarks
