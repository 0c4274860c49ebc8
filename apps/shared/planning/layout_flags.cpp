#include "lockstep/apps/shared/planning/layout_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::apps {
namespace {

/// Flags with their values, as the programs take them.
using LayoutFlags = std::vector<std::pair<std::string, std::string>>;

void add_pipeline(const PlannedLayout& layout, LayoutFlags& flags) {
  if (layout.pipeline > 1) flags.emplace_back("--pipeline-schedule", layout.schedule);
  if (layout.schedule == "interleaved")
    flags.emplace_back("--stages-per-rank", fmt::format("{}", layout.stages_per_rank));
}

LayoutFlags flags_of_gpts(int64_t global_batch, const PlannedLayout& layout) {
  LayoutFlags flags{{"--mesh", layout.mesh()}};
  flags.emplace_back("--sharding", fmt::format("{}", layout.stage));
  flags.emplace_back("--micro-batch-size", fmt::format("{}", micro_batch_size(global_batch, layout)));
  flags.emplace_back("--recompute", layout.recomputes ? "every_block" : "nothing");
  add_pipeline(layout, flags);
  if (layout.has_sequence_shards) flags.emplace_back("--sequence-parallel", "");
  return flags;
}

LayoutFlags flags_of_images(const PlannedLayout& layout) {
  LayoutFlags flags{{"--mesh", layout.mesh()}};
  flags.emplace_back("--sharding", fmt::format("{}", layout.stage));
  flags.emplace_back("--accumulate-steps", fmt::format("{}", layout.micro_batches));
  add_pipeline(layout, flags);
  return flags;
}

/// Servers and workers are those of the cluster.
LayoutFlags flags_of_clicks(const PlannedLayout& layout) {
  if (layout.servers == 0) return {};
  return {{"--strategy", "parameter_server"}, {"--max-staleness", "0"}};
}

LayoutFlags all_flags(PlannedProgram program, int64_t global_batch, const PlannedLayout& layout) {
  switch (program) {
    case PlannedProgram::kTrainGpt:
      return flags_of_gpts(global_batch, layout);
    case PlannedProgram::kTrainImages:
      return flags_of_images(layout);
    case PlannedProgram::kTrainCtr:
      break;
  }
  return flags_of_clicks(layout);
}

std::string spelled(const LayoutFlags& flags, const std::string& between) {
  std::vector<std::string> words;
  words.reserve(flags.size());
  for (const auto& [flag, value] : flags)
    words.push_back(value.empty() ? flag : fmt::format("{} {}", flag, value));
  return fmt::format("{}", fmt::join(words, between));
}

/// Whether the program does the same without the flag.
bool is_default(const PlannedLayout& layout, const std::pair<std::string, std::string>& flag) {
  const auto& [name, value] = flag;
  return (name == "--sharding" && value == "0") || (name == "--recompute" && value == "nothing") ||
         (name == "--mesh" && value == "data=1") || (name == "--pipeline-schedule" && value == "1f1b") ||
         (name == "--accumulate-steps" && value == "1" && layout.pipeline == 1);
}

}  // namespace

std::string program_name(PlannedProgram program) {
  switch (program) {
    case PlannedProgram::kTrainGpt:
      return "train_gpt";
    case PlannedProgram::kTrainImages:
      return "train_images";
    case PlannedProgram::kTrainCtr:
      break;
  }
  return "train_ctr";
}

int64_t micro_batch_size(int64_t global_batch, const PlannedLayout& layout) {
  const int64_t of_replica = (global_batch + layout.replicas() - 1) / layout.replicas();
  return (of_replica + layout.micro_batches - 1) / layout.micro_batches;
}

std::string layout_flags(PlannedProgram program, int64_t global_batch, const PlannedLayout& layout) {
  LayoutFlags flags = all_flags(program, global_batch, layout);
  std::erase_if(flags, [&](const auto& flag) { return is_default(layout, flag); });
  return spelled(flags, " ");
}

std::string changed_flags(PlannedProgram program, int64_t global_batch, const PlannedLayout& from,
                          const PlannedLayout& to) {
  const LayoutFlags before = all_flags(program, global_batch, from);
  LayoutFlags changed = all_flags(program, global_batch, to);
  std::erase_if(changed, [&](const auto& flag) {
    return std::find(before.begin(), before.end(), flag) != before.end();
  });
  std::string text = spelled(changed, ", ");
  if (program != PlannedProgram::kTrainCtr || from.servers == to.servers) return text;
  if (to.servers == 0) return "whole tables on each replica";
  if (!text.empty()) text += ", ";
  return text + fmt::format("{} server{} and {} replica{}", to.servers, to.servers == 1 ? "" : "s",
                            to.replicas(), to.replicas() == 1 ? "" : "s");
}

}  // namespace lockstep::apps
