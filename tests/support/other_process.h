#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <stdexcept>

namespace lockstep::testing {

/// Runs `act` in its own process, and kills that process at the end.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void()>& act) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
    process_ = fork();
    if (process_ == 0) {
      act();
      const char done = 1;
      if (write(ends[1], &done, 1) == 1) pause();
      _exit(1);
    }
    close(ends[1]);
    char done = 0;
    is_ready_ = read(ends[0], &done, 1) == 1;
    close(ends[0]);
  }
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  pid_t id() const { return process_; }
  bool is_ready() const { return is_ready_; }

 private:
  pid_t process_ = -1;
  bool is_ready_ = false;
};

/// How a process of its own ended.
struct ChildEnd {
  bool has_returned = false;  ///< `act` returned true
  uint64_t peak_bytes = 0;    ///< the most memory that it had at once, with its share of this process's
};

/// Runs `act` in a process of its own.
inline ChildEnd run_in_child(const std::function<bool()>& act) {
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("fork failed");
  if (process == 0) _exit(act() ? 0 : 1);
  int status = 0;
  rusage usage{};
  if (wait4(process, &status, 0, &usage) != process) throw std::runtime_error("wait4 failed");
  constexpr uint64_t kUnit = 1024;
  return {.has_returned = WIFEXITED(status) && WEXITSTATUS(status) == 0,
          .peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * kUnit};
}

/// Returns the memory that `act` takes at most, beyond what a process has that does nothing. A failed `act`
/// takes more than any limit.
inline uint64_t peak_memory_of(const std::function<bool()>& act) {
  const ChildEnd idle = run_in_child([] { return true; });
  const ChildEnd end = run_in_child(act);
  if (!end.has_returned) return UINT64_MAX;
  return end.peak_bytes > idle.peak_bytes ? end.peak_bytes - idle.peak_bytes : 0;
}

/// Whether become_other_user() works: only root can become another user.
inline bool can_become_other_user() {
  return geteuid() == 0;
}

/// Makes this process one of a user without rights. Returns whether that worked.
inline bool become_other_user() {
  constexpr uid_t kNobody = 65534;
  return setgid(kNobody) == 0 && setuid(kNobody) == 0;
}

/// Runs `act` in a process of a user without rights, and returns whether it returned true.
inline bool run_as_other_user(const std::function<bool()>& act) {
  return run_in_child([&] { return become_other_user() && act(); }).has_returned;
}

}  // namespace lockstep::testing
