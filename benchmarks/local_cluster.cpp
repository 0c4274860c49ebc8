#include "lockstep/benchmarks/local_cluster.h"

#include <c10/util/StringUtil.h>

#include <stdexcept>

#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::chrono::seconds kTimeout{300};

/// Only worker 0 listens on its address; the others only have to differ.
std::vector<std::string> addresses_of(int num_workers, int port) {
  std::vector<std::string> addresses{c10::str("127.0.0.1:", port)};
  for (int worker = 1; worker < num_workers; ++worker) addresses.push_back(c10::str("127.0.0.1:", worker));
  return addresses;
}

std::string tf_config(const std::vector<std::string>& addresses, int worker) {
  std::vector<std::string> quoted;
  for (const auto& address : addresses) quoted.push_back("\"" + address + "\"");
  return c10::str(R"({"cluster": {"worker": [)", c10::Join(", ", quoted),
                  R"(]}, "task": {"type": "worker", "index": )", worker, "}}");
}

}  // namespace

void LocalCluster::write_line(const std::string& line) const {
  for (const auto& other : others) other->write_line(line);
}

void LocalCluster::close_inputs() const {
  for (const auto& other : others) other->close_input();
}

void LocalCluster::read_lines() const {
  for (const auto& other : others) other->read_line(kTimeout);
}

LocalCluster start_local_cluster(const Command& job, int num_workers) {
  TcpListener listener("127.0.0.1", 0);
  const auto addresses = addresses_of(num_workers, listener.port());
  LocalCluster cluster;
  for (int worker = 1; worker < num_workers; ++worker) {
    Command own = job;
    own.environment.emplace_back("TF_CONFIG", tf_config(addresses, worker));
    cluster.others.push_back(std::make_unique<ChildProcess>(own));
  }
  cluster.resolver = std::make_shared<SimpleClusterResolver>(addresses, 0);
  cluster.options.listening_socket = listener.release();
  return cluster;
}

std::shared_ptr<const ClusterResolver> cluster_of_job() {
  if (auto cluster = resolve_cluster(process_environment())) return cluster;
  throw std::invalid_argument("--serve: expected a cluster in the environment, but got none");
}

}  // namespace lockstep::benchmarks
