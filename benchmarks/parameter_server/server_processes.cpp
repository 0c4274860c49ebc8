#include "lockstep/benchmarks/parameter_server/server_processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>

namespace lockstep::benchmarks {
namespace {

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  return ends;
}

}  // namespace

ServerProcesses::ServerProcesses(int count, int num_ports, const Serve& serve) {
  for (int i = 0; i < count; ++i) {
    const auto told = make_pipe();
    std::fflush(stdout);
    const pid_t parent = getpid();
    const pid_t process = fork();
    if (process < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // the parent has ended meanwhile
      int code = 0;
      try {
        serve(i, [&](const std::vector<int>& ports) {
          const size_t size = ports.size() * sizeof(int);
          if (write(told[1], ports.data(), size) != static_cast<ssize_t>(size))
            throw std::runtime_error("expected to tell the ports");
          for (;;) pause();
        });
      } catch (const std::exception& error) {
        std::fprintf(stderr, "server: %s\n", error.what());
        code = 1;
      }
      _exit(code);
    }
    close(told[1]);
    Child child{.process = process};
    child.ports.resize(static_cast<size_t>(num_ports));
    const size_t size = child.ports.size() * sizeof(int);
    const auto got = read(told[0], child.ports.data(), size);
    close(told[0]);
    children_.push_back(std::move(child));
    if (got != static_cast<ssize_t>(size)) throw std::runtime_error("a server has ended before it listened");
  }
}

ServerProcesses::~ServerProcesses() {
  for (const auto& child : children_) {
    kill(child.process, SIGKILL);
    waitpid(child.process, nullptr, 0);
  }
}

}  // namespace lockstep::benchmarks
