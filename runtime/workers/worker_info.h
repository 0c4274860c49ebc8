#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The information that a worker process gives to the others when they meet.
struct WorkerInfo {
  std::string host;     ///< name of its machine
  std::string address;  ///< address it listens on
  int heartbeat_port = 0;
  std::string heartbeat_session{};  ///< its Heartbeat::session()
  int exchange_port = 0;            ///< 0 if it exchanges over Gloo
  std::string exchange_name{};      ///< of its Unix socket; empty if it has none
  int num_replicas = 1;
  /// Names and values that must be the same on all workers.
  std::vector<std::pair<std::string, std::string>> facts;

  std::string text() const;
  /// Parses the output of text(); safe for untrusted input. Throws InvalidArgument if the text is malformed,
  /// if a port is above 65535, or if the number of replicas is not in [1, 65536].
  static WorkerInfo parse(const std::string& text);

  struct Difference {
    std::string fact;
    std::string here;  ///< empty if this worker has no such fact
    std::string there;
  };
  /// Returns the first fact that differs from `other`.
  std::optional<Difference> difference(const WorkerInfo& other) const;

  bool operator==(const WorkerInfo&) const = default;
};

}  // namespace lockstep
