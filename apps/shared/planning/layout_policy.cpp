#include "lockstep/apps/shared/planning/layout_policy.h"

#include <utility>

#include "lockstep/apps/shared/planning/quantity.h"

namespace lockstep::apps {
namespace {

std::string policy_name(LayoutPolicy policy) {
  switch (policy) {
    case LayoutPolicy::kCheck:
      return "check";
    case LayoutPolicy::kAuto:
      return "auto";
    case LayoutPolicy::kOff:
      break;
  }
  return "off";
}

}  // namespace

Flag layout_policy_flag(const std::string& chosen) {
  const std::string choice =
      chosen.empty() ? "" : "auto chooses the fastest " + chosen + " that fit, for CPUs of one process. ";
  return {"Training",
          "plan",
          "NAME",
          "check refuses a training whose predicted memory a device does not have, before the first step, "
          "and says what would fit. " +
              choice + "off starts anything",
          policy_name(LayoutPolicyChoice().plan),
          FlagRole::kOperation};
}

Flag device_memory_flag() {
  return {"Training",
          "device-memory",
          "SIZE",
          "Memory that the training may use on a device, such as 80GiB, for --plan (default: what this "
          "machine has left, divided by the replicas; GPUs are not checked without it)",
          "",
          FlagRole::kOperation};
}

void read_layout_policy(const Arguments& given, const std::vector<std::string>& layout_flags,
                        LayoutPolicyChoice& choice) {
  std::vector<std::pair<std::string, LayoutPolicy>> policies{{"check", LayoutPolicy::kCheck},
                                                             {"off", LayoutPolicy::kOff}};
  if (!layout_flags.empty()) policies.insert(policies.begin() + 1, {"auto", LayoutPolicy::kAuto});
  choice.plan = given.choice<LayoutPolicy>("plan", policies, choice.plan);
  choice.device_memory = given.text("device-memory", choice.device_memory);
  if (given.has("device-memory")) parse_bytes("device-memory", choice.device_memory);
  if (choice.plan != LayoutPolicy::kAuto) return;
  for (const auto& flag : layout_flags) {
    const bool is_typed = given.has(flag) && given.origin(flag).kind != OriginKind::kFile;
    if (is_typed) given.refuse_together(flag, "expected it without --plan auto, which chooses it");
  }
}

settings::NamedValues layout_policy_values(const LayoutPolicyChoice& choice) {
  return {{"plan", policy_name(choice.plan)}, {"device-memory", settings::text(choice.device_memory)}};
}

}  // namespace lockstep::apps
