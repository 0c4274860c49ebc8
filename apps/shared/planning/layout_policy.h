#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting_values.h"

namespace lockstep::apps {

/// Checks of layouts, or their choice, before the first step.
enum class LayoutPolicy : uint8_t {
  kCheck,  ///< a training that does not fit into the memory is refused
  kAuto,   ///< the fastest layout that fits is chosen
  kOff,
};

/// The values of --plan and --device-memory.
struct LayoutPolicyChoice {
  LayoutPolicy plan = LayoutPolicy::kCheck;
  std::string device_memory;  ///< such as 80GiB; empty: what this machine has left

  bool operator==(const LayoutPolicyChoice&) const = default;
};

/// Returns the flag --plan. `chosen` are the settings that auto chooses, such as "mesh and sharding"; empty:
/// the program has no such plan.
Flag layout_policy_flag(const std::string& chosen);
Flag device_memory_flag();

/// Reads the flags. With --plan auto, refuses each of `layout_flags`, which give a part of a layout, unless a
/// configuration file has it: its layout is replaced.
void read_layout_policy(const Arguments& given, const std::vector<std::string>& layout_flags,
                        LayoutPolicyChoice& choice);

settings::NamedValues layout_policy_values(const LayoutPolicyChoice& choice);

}  // namespace lockstep::apps
