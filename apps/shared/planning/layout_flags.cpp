#include "lockstep/apps/shared/planning/layout_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::apps {
namespace {

/// Flags with their values, as train_gpt takes them.
using LayoutFlags = std::vector<std::pair<std::string, std::string>>;

LayoutFlags all_flags(int64_t global_batch, const PlannedLayout& layout) {
  LayoutFlags flags{{"--mesh", layout.mesh()}};
  flags.emplace_back("--sharding", fmt::format("{}", layout.stage));
  flags.emplace_back("--micro-batch-size", fmt::format("{}", micro_batch_size(global_batch, layout)));
  flags.emplace_back("--recompute", layout.recomputes ? "every_block" : "nothing");
  if (layout.pipeline > 1) flags.emplace_back("--pipeline-schedule", layout.schedule);
  if (layout.schedule == "interleaved")
    flags.emplace_back("--stages-per-rank", fmt::format("{}", layout.stages_per_rank));
  if (layout.has_sequence_shards) flags.emplace_back("--sequence-parallel", "");
  return flags;
}

std::string spelled(const LayoutFlags& flags, const std::string& between) {
  std::vector<std::string> words;
  words.reserve(flags.size());
  for (const auto& [flag, value] : flags)
    words.push_back(value.empty() ? flag : fmt::format("{} {}", flag, value));
  return fmt::format("{}", fmt::join(words, between));
}

/// Whether train_gpt does the same without the flag.
bool is_default(const std::pair<std::string, std::string>& flag) {
  const auto& [name, value] = flag;
  return (name == "--sharding" && value == "0") || (name == "--recompute" && value == "nothing") ||
         (name == "--mesh" && value == "data=1") || (name == "--pipeline-schedule" && value == "1f1b");
}

}  // namespace

int64_t micro_batch_size(int64_t global_batch, const PlannedLayout& layout) {
  const int64_t of_replica = (global_batch + layout.replicas() - 1) / layout.replicas();
  return (of_replica + layout.micro_batches - 1) / layout.micro_batches;
}

std::string layout_flags(int64_t global_batch, const PlannedLayout& layout) {
  LayoutFlags flags = all_flags(global_batch, layout);
  std::erase_if(flags, is_default);
  return spelled(flags, " ");
}

std::string changed_flags(int64_t global_batch, const PlannedLayout& from, const PlannedLayout& to) {
  const LayoutFlags before = all_flags(global_batch, from);
  LayoutFlags changed = all_flags(global_batch, to);
  std::erase_if(changed, [&](const auto& flag) {
    return std::find(before.begin(), before.end(), flag) != before.end();
  });
  return spelled(changed, ", ");
}

}  // namespace lockstep::apps
