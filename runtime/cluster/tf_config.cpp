#include "lockstep/runtime/cluster/tf_config.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/runtime/base/internal/bounded_json.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr char kTfConfig[] = "TF_CONFIG";
constexpr char kNothing[] = "nothing";

std::string json_text(const json& value) {
  if (value.is_string()) return quoted_excerpt(value.get_ref<const std::string&>());
  return excerpt(value.dump());
}

[[noreturn]] void refuse_tf_config(const std::string& path, const std::string& expected,
                                   const std::string& given) {
  refuse_value({.source = kTfConfig, .name = path}, expected, given);
}

[[noreturn]] void refuse_json(const std::string& path, const std::string& expected, const json& given) {
  refuse_tf_config(path, expected, json_text(given));
}

/// The number that a string of digits spells.
std::optional<int> read_digits(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  int value = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ec != std::errc()) return std::nullopt;
  return value;
}

/// Reads a job's tasks, and keeps track of the addresses of all jobs.
class JobReader {
 public:
  ClusterSpec::Tasks read(const std::string& path, const json& job) {
    ClusterSpec::Tasks tasks;
    if (job.is_array()) {
      for (const json& address : job) {
        const int index = static_cast<int>(tasks.size());
        tasks.emplace(index, read_address(path + "[" + std::to_string(index) + "]", address));
      }
    } else if (job.is_object()) {
      for (const auto& [key, address] : job.items()) {
        const std::string task_path = json_path(path, key);
        const auto index = read_digits(key);
        if (!index) refuse_tf_config(task_path, "named by the task's index, 0 or more", quoted_excerpt(key));
        if (!tasks.emplace(*index, read_address(task_path, address)).second) {
          refuse_tf_config(task_path, "the only one with index " + std::to_string(*index),
                           quoted_excerpt(key) + " for a second time");
        }
      }
    } else {
      refuse_json(path, "a list of host:port, or an object of host:port by task index", job);
    }
    return tasks;
  }

 private:
  HostPort read_address(const std::string& path, const json& value) {
    if (!value.is_string()) refuse_json(path, "a string host:port", value);
    HostPort address =
        parse_host_port(value.get_ref<const std::string&>(), {.source = kTfConfig, .name = path});
    const auto [first, is_new] = paths_.emplace(address, path);
    if (!is_new)
      refuse_tf_config(path, "an address of its own", json_text(value) + " as in " + first->second);
    return address;
  }

  std::map<HostPort, std::string> paths_;
};

ClusterSpec read_cluster(const json& document) {
  const auto found = document.find("cluster");
  if (found == document.end()) return {};
  if (!found->is_object()) refuse_json("cluster", "an object of jobs", *found);
  JobReader reader;
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : found->items()) {
    const std::string path = json_path("cluster", job);
    if (!is_task_type(job)) {
      refuse_tf_config(path, std::string("a job named ") + kTaskTypes, quoted_excerpt(job));
    }
    ClusterSpec::Tasks read = reader.read(path, tasks);
    const bool is_single_chief = read.empty() || (read.size() == 1 && read.begin()->first == 0);
    if (job == "chief" && !is_single_chief) refuse_json(path, "one task at most, with index 0", tasks);
    jobs.emplace(job, std::move(read));
  }
  ClusterSpec cluster(std::move(jobs));
  if (!found->empty() && cluster.num_training_tasks() == 0) {
    refuse_json("cluster", "an object with a chief or a worker", *found);
  }
  return cluster;
}

/// The indices that a job has, in words.
std::string indices_text(const ClusterSpec& cluster, const std::string& job) {
  const std::vector<int> indices = cluster.task_indices(job);
  if (indices.size() == 1) return std::to_string(indices.front());
  if (indices.back() == static_cast<int>(indices.size()) - 1) return "0 to " + std::to_string(indices.back());
  std::string text = "one of";
  for (const int index : indices) text += (index == indices.front() ? " " : ", ") + std::to_string(index);
  return excerpt(text);
}

std::string read_task_type(const json& task, const ClusterSpec& cluster) {
  const auto type = task.find("type");
  const std::string expected = kTaskTypes;
  if (type == task.end()) refuse_tf_config("task.type", expected, kNothing);
  if (!type->is_string() || !is_task_type(type->get_ref<const std::string&>())) {
    refuse_json("task.type", expected, *type);
  }
  std::string name = *type;
  if (name == "evaluator" || cluster.has_job(name)) return name;
  if (!cluster.empty()) refuse_json("task.type", "a job of the cluster, or evaluator", *type);
  if (name == "ps") refuse_json("task.type", "chief, worker or evaluator without a cluster", *type);
  return name;
}

int read_task_index(const json& task, const ClusterSpec& cluster, const std::string& type) {
  std::string expected = "a whole number of 0 or more";
  if (cluster.has_job(type)) {
    expected = "an index of cluster." + type + ", " + indices_text(cluster, type);
  } else if (type != "evaluator") {
    expected = "0 without a cluster";
  }
  const auto index = task.find("index");
  if (index == task.end()) refuse_tf_config("task.index", expected, kNothing);

  // Numbers are read as text too, which refuses those above the range of an int.
  const bool is_whole = index->is_number_unsigned();
  const auto value = is_whole             ? read_digits(index->dump())
                     : index->is_string() ? read_digits(index->get_ref<const std::string&>())
                                          : std::nullopt;
  const bool is_there = value && (type == "evaluator" && !cluster.has_job(type)
                                      ? true
                                      : (cluster.empty() ? *value == 0 : cluster.has_task(type, *value)));
  if (!is_there) refuse_json("task.index", expected, *index);
  return *value;
}

}  // namespace

TfConfig parse_tf_config(std::string_view text) {
  const json document = parse_bounded_json(text, {.source = kTfConfig});
  if (!document.is_object()) refuse_json("the value", "a JSON object", document);
  TfConfig config;
  config.cluster = read_cluster(document);
  const auto task = document.find("task");
  if (task == document.end()) {
    if (config.cluster.empty()) return config;
    refuse_tf_config("task", "an object with type and index", kNothing);
  }
  if (!task->is_object()) refuse_json("task", "an object with type and index", *task);
  config.task_type = read_task_type(*task, config.cluster);
  config.task_id = read_task_index(*task, config.cluster, config.task_type);
  return config;
}

}  // namespace lockstep
