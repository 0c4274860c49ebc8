#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace lockstep::testing
