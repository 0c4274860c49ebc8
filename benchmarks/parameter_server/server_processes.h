#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

namespace lockstep::benchmarks {

/// Children of this process that serve until this goes. Made before the process has threads.
class ServerProcesses {
 public:
  /// To be called by a child once it listens: does not return.
  using Listening = std::function<void(const std::vector<int>& ports)>;
  /// The work of child number `server`.
  using Serve = std::function<void(int server, const Listening& listening)>;

  /// Blocks until all listen. Throws std::runtime_error where one ends before it does.
  ServerProcesses(int count, int num_ports, const Serve& serve);
  ~ServerProcesses();
  ServerProcesses(const ServerProcesses&) = delete;
  ServerProcesses& operator=(const ServerProcesses&) = delete;

  const std::vector<int>& ports_of(size_t server) const { return children_.at(server).ports; }
  size_t size() const { return children_.size(); }

 private:
  struct Child {
    pid_t process = -1;
    std::vector<int> ports;
  };

  std::vector<Child> children_;
};

}  // namespace lockstep::benchmarks
