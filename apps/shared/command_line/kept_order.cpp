#include "lockstep/apps/shared/command_line/kept_order.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/runtime/base/files/checkpoint_error.h"

namespace lockstep::apps {
namespace {

using nlohmann::json;

struct ReadingOrder {
  std::string memory;
  int64_t lanes = 0;
};

json value_in(const json& root, const char* part, const char* name) {
  if (!root.is_object() || !root.contains(part) || !root[part].is_object()) return {};
  const json entry = root[part].value(name, json());
  return entry.is_object() ? entry.value("value", json()) : entry;
}

std::optional<ReadingOrder> order_in(const std::string& configuration) {
  const json root = json::parse(configuration, nullptr, /*allow_exceptions=*/false);
  const json memory = value_in(root, "values", "parquet-memory");
  const json lanes = value_in(root, "resolved", kLanes);
  if (!memory.is_string() || !lanes.is_number_integer()) return std::nullopt;
  return ReadingOrder{.memory = memory.get<std::string>(), .lanes = lanes.get<int64_t>()};
}

}  // namespace

void require_kept_order(const std::string& earlier, const std::string& now) {
  const auto before = order_in(earlier), after = order_in(now);
  if (!before || !after || before->lanes == after->lanes || before->memory == after->memory) return;
  throw CheckpointError(fmt::format(
      "--parquet-memory {}: expected {}, with which the checkpoint was made, or another value with which a "
      "batch has examples of {} row groups, but got one with which it has examples of {}; their order "
      "depends on it, and the rest of the epoch would repeat some and leave out others",
      after->memory, before->memory, before->lanes, after->lanes));
}

}  // namespace lockstep::apps
