#include "lockstep/runtime/cluster/cluster_spec.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_spec(const std::string& expected, const std::string& given) {
  throw InvalidArgument("[ClusterSpec] expected " + expected + ", but got " + given);
}

}  // namespace

bool is_task_type(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"chief", "worker", "evaluator", "ps"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

ClusterSpec::ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {
  std::erase_if(jobs_, [](const auto& job) { return job.second.empty(); });
  std::map<HostPort, std::string> owners;
  for (const auto& [job, tasks] : jobs_) {
    if (!is_task_type(job)) refuse_spec(std::string("a job named ") + kTaskTypes, quoted_excerpt(job));
    for (const auto& [index, address] : tasks) {
      const std::string task = job + " " + std::to_string(index);
      if (index < 0) refuse_spec("a task index of 0 or more", task);
      if (job == "chief" && index != 0) refuse_spec("one chief at most, with index 0", task);
      const auto [owner, is_new] = owners.emplace(address, task);
      if (!is_new) {
        refuse_spec("an address of its own for every task",
                    excerpt(address.str()) + " for " + owner->second + " and " + task);
      }
    }
  }
}

bool ClusterSpec::has_task(const std::string& job, int index) const {
  const auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.contains(index);
}

int ClusterSpec::num_tasks(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : static_cast<int>(found->second.size());
}

std::vector<int> ClusterSpec::task_indices(const std::string& job) const {
  std::vector<int> indices;
  if (const auto found = jobs_.find(job); found != jobs_.end()) {
    for (const auto& [index, address] : found->second) indices.push_back(index);
  }
  return indices;
}

const HostPort& ClusterSpec::task_address(const std::string& job, int index) const {
  if (!has_task(job, index)) refuse_spec("a task of the cluster", excerpt(job) + " " + std::to_string(index));
  return jobs_.at(job).at(index);
}

int ClusterSpec::training_rank(const std::string& job, int index) const {
  if (job != "chief" && job != "worker") {
    refuse_spec("a chief or a worker, which train", excerpt(job) + " " + std::to_string(index));
  }
  task_address(job, index);
  if (job == "chief") return 0;
  const Tasks& workers = jobs_.at(job);
  return num_tasks("chief") + static_cast<int>(std::distance(workers.begin(), workers.find(index)));
}

std::vector<HostPort> ClusterSpec::training_addresses() const {
  std::vector<HostPort> addresses;
  for (const char* job : {"chief", "worker"}) {
    if (const auto found = jobs_.find(job); found != jobs_.end()) {
      for (const auto& [index, address] : found->second) addresses.push_back(address);
    }
  }
  return addresses;
}

}  // namespace lockstep
