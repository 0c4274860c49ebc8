#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What a worker process tells the others of itself as they meet.
struct WorkerInfo {
  std::string host;     ///< its machine's name
  std::string address;  ///< where it listens
  int heartbeat_port = 0;
  int num_replicas = 1;
  /// Names and values that must be the same on all workers.
  std::vector<std::pair<std::string, std::string>> facts;

  std::string text() const;
  /// Reads what text() wrote, from whoever reaches the store. Throws InvalidArgument for anything else, for a
  /// port above 65535 and for less than one replica or more than 65536.
  static WorkerInfo parse(const std::string& text);

  struct Difference {
    std::string fact;
    std::string here;  ///< empty: this card has no such fact
    std::string there;
  };
  /// The first fact that `other` has not, or otherwise.
  std::optional<Difference> difference(const WorkerInfo& other) const;

  bool operator==(const WorkerInfo&) const = default;
};

}  // namespace lockstep
