#include "lockstep/benchmarks/planning/planned_processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::benchmarks {
namespace {

/// Returns a port that nobody listens on.
int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool is_bound = listener >= 0 &&
                        bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (listener >= 0) close(listener);
  if (!is_bound) throw std::runtime_error("[planning_benchmark] expected a free port, but found none");
  return ntohs(address.sin_port);
}

std::string own_path() {
  std::vector<char> path(4096);
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length < 0)
    throw std::runtime_error("[planning_benchmark] expected /proc/self/exe to name this program");
  return {path.data(), static_cast<size_t>(length)};
}

}  // namespace

int64_t mean_of_workers(int64_t number, int64_t processes) {
  const std::string port = std::to_string(free_port());
  const std::string program = own_path();
  std::vector<FILE*> outputs;
  for (int64_t rank = 0; rank < processes; ++rank) {
    std::ostringstream command;
    command << "RANK=" << rank << " LOCAL_RANK=" << rank << " WORLD_SIZE=" << processes
            << " LOCAL_WORLD_SIZE=" << processes << " MASTER_ADDR=127.0.0.1 MASTER_PORT=" << port << " exec '"
            << program << "' --worker-of " << number;
    outputs.push_back(popen(command.str().c_str(), "r"));  // NOLINT(cert-env33-c): this program itself
  }
  int64_t sum = 0;
  bool have_all = true;
  for (FILE* output : outputs) {
    long long value = 0;
    have_all = output != nullptr && std::fscanf(output, "%lld", &value) == 1 && have_all;
    have_all = output != nullptr && pclose(output) == 0 && have_all;
    sum += value;
  }
  if (!have_all) throw std::runtime_error("[planning_benchmark] a worker failed, and has said why");
  return sum / processes;
}

}  // namespace lockstep::benchmarks
