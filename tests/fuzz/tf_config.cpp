#include "lockstep/runtime/cluster/tf_config.h"

#include <nlohmann/json.hpp>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

std::string written(const TfConfig& config) {
  nlohmann::json root;
  root["cluster"] = nlohmann::json::object();
  for (const auto& [job, tasks] : config.cluster.jobs())
    for (const auto& [index, address] : tasks) root["cluster"][job][std::to_string(index)] = address.str();
  root["task"] = {{"type", config.task_type}, {"index", config.task_id}};
  return root.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  const auto read = [&]() -> std::optional<TfConfig> {
    const PeakMemory memory;
    auto config = accepted<InvalidArgument>([&] { return parse_tf_config(text); },
                                            [](std::string_view message) {
                                              expect(message.starts_with("[TF_CONFIG] expected "),
                                                     "a message that names TF_CONFIG");
                                              expect_plain_line(message);
                                            });
    memory.expect_at_most(400, size, 100'000);
    return config;
  };
  const auto config = read();
  if (!config) return 0;
  const auto again = parse_tf_config(written(*config));
  expect(again.cluster == config->cluster && again.task_type == config->task_type &&
             again.task_id == config->task_id,
         "the same cluster and task out of what was written of them");
  // An accepted task belongs to the cluster: this throws for any other.
  const auto membership = make_membership("fuzz", config->cluster, config->task_type, config->task_id);
  if (membership.rank)
    expect(*membership.rank >= 0 && *membership.rank < membership.world_size, "a rank within the world");
  return 0;
}

}  // namespace lockstep::fuzz
