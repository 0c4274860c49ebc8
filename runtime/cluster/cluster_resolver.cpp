#include "lockstep/runtime/cluster/cluster_resolver.h"

#include <map>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

constexpr char kWorkerHosts[] = "--worker-hosts";
constexpr char kTaskIndex[] = "--task-index";

std::string task_text(const std::string& type, int index) {
  return excerpt(type) + " " + std::to_string(index);
}

ClusterMembership membership_from_flags(const std::vector<std::string>& worker_hosts, int task_index) {
  if (worker_hosts.empty()) {
    throw InvalidArgument(std::string("[flags] expected ") + kWorkerHosts +
                          " to name a host:port, but got none");
  }
  ClusterSpec::Tasks workers;
  std::map<HostPort, size_t> indices;
  for (size_t i = 0; i < worker_hosts.size(); ++i) {
    const ConfigurationValue value{.source = "flags", .name = kWorkerHosts + ("[" + std::to_string(i) + "]")};
    const HostPort address = parse_host_port(worker_hosts[i], value);
    const auto [first, is_new] = indices.emplace(address, i);
    if (!is_new) {
      refuse_value(value, "an address of its own",
                   quoted_excerpt(worker_hosts[i]) + " as in " + kWorkerHosts + "[" +
                       std::to_string(first->second) + "]");
    }
    workers.emplace(static_cast<int>(i), address);
  }
  if (!workers.contains(task_index)) {
    refuse_value({.source = "flags", .name = kTaskIndex},
                 std::string("an index of ") + kWorkerHosts + ", 0 to " + std::to_string(workers.size() - 1),
                 std::to_string(task_index));
  }
  return make_membership(std::string("flags (") + kTaskIndex + " " + std::to_string(task_index) + " of " +
                             std::to_string(workers.size()) + " in " + kWorkerHosts + ")",
                         ClusterSpec({{"worker", workers}}), "worker", task_index);
}

}  // namespace

ClusterMembership make_membership(const std::string& source, const ClusterSpec& spec,
                                  const std::string& task_type, int task_id) {
  const auto refuse = [&](const std::string& expected) {
    throw InvalidArgument("[" + source + "] expected " + expected + ", but got " +
                          task_text(task_type, task_id));
  };
  if (!is_task_type(task_type)) refuse(std::string("a task of type ") + kTaskTypes);
  if (task_id < 0) refuse("a task index of 0 or more");
  const bool may_be_absent = task_type == "evaluator" ? !spec.has_job(task_type) : spec.empty();
  if (!may_be_absent && !spec.has_task(task_type, task_id)) refuse("a task of the cluster");

  ClusterMembership membership{
      .source = source, .cluster_spec = spec, .task_type = task_type, .task_id = task_id};
  const bool trains = task_type == "chief" || task_type == "worker";
  if (!trains) membership.rank = std::nullopt;
  const std::vector<HostPort> addresses = spec.training_addresses();
  if (addresses.empty()) return membership;

  membership.world_size = static_cast<int>(addresses.size());
  membership.master = addresses.front();
  if (!trains) return membership;
  const int rank = spec.training_rank(task_type, task_id);
  membership.rank = rank;
  membership.local_world_size = 0;
  for (int other = 0; other < membership.world_size; ++other) {
    if (addresses[other].host != addresses[rank].host) continue;
    if (other == rank) membership.local_rank = membership.local_world_size;
    ++membership.local_world_size;
  }
  return membership;
}

FixedClusterResolver::FixedClusterResolver(ClusterMembership membership)
    : membership_(std::move(membership)) {}

int FixedClusterResolver::rank() const {
  if (membership_.rank) return *membership_.rank;
  throw InvalidArgument("[" + membership_.source +
                        "] expected a chief or a worker, which have a rank, but this is " +
                        task_text(membership_.task_type, membership_.task_id));
}

SimpleClusterResolver::SimpleClusterResolver(const ClusterSpec& spec, const std::string& task_type,
                                             int task_id)
    : FixedClusterResolver(make_membership("the program's cluster", spec, task_type, task_id)) {}

SimpleClusterResolver::SimpleClusterResolver(const std::vector<std::string>& worker_hosts, int task_index)
    : FixedClusterResolver(membership_from_flags(worker_hosts, task_index)) {}

}  // namespace lockstep
