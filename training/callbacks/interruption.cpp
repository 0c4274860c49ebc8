#include "lockstep/training/callbacks/interruption.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>

namespace lockstep {
namespace {

// A signal handler can reach only globals.
std::atomic<int> received{0};
std::atomic<int64_t> received_at{0};  // milliseconds
std::atomic<bool> is_remembered{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

/// Some launchers, GNU timeout among them, send one signal to the process and then to its group.
constexpr int64_t kSameSignal = 200;  // milliseconds

int64_t milliseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

extern "C" void lockstep_remember_signal(int signal) {
  constexpr int kExitBySignal = 128;
  const int error = errno;  // errno of the interrupted code
  const int64_t now = milliseconds_now();
  const int before = received;
  if (!is_remembered) _exit(kExitBySignal + signal);
  if (before == 0) {
    received_at = now;
    received = signal;
  } else if (before != signal || now - received_at > kSameSignal) {
    _exit(kExitBySignal + signal);
  }
  errno = error;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptionGuard::InterruptionGuard(bool from_first_step) {
  received = 0;
  is_remembered = !from_first_step;
  set_handler(lockstep_remember_signal);
}

InterruptionGuard::~InterruptionGuard() {
  set_handler(SIG_DFL);
}

void InterruptionGuard::begin_steps() {
  is_remembered = true;
}

int InterruptionGuard::signal() const {
  return received;
}

}  // namespace lockstep
