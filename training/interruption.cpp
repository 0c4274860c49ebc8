#include "lockstep/training/interruption.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace lockstep {
namespace {

// A signal handler reaches nothing but a global.
volatile std::sig_atomic_t received = 0;

extern "C" void lockstep_remember_signal(int signal) {
  constexpr int kExitBySignal = 128;
  if (received != 0) _exit(kExitBySignal + signal);
  received = signal;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptionGuard::InterruptionGuard() {
  received = 0;
  set_handler(lockstep_remember_signal);
}

InterruptionGuard::~InterruptionGuard() {
  set_handler(SIG_DFL);
}

int InterruptionGuard::signal() const {
  return received;
}

}  // namespace lockstep
