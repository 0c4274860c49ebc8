// Chooses the layouts of a case that are measured.
#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/benchmarks/planning/order/order_case.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kSlowest = 2.5;  // times as slow as the first one

/// The ways to use the devices of which the best is measured.
std::string way_of(const PlannedLayout& layout) {
  return layout.mesh() + ", " + std::to_string(layout.stage) + (layout.recomputes ? ", again" : "");
}

}  // namespace

std::string kind_of(const PlannedLayout& layout) {
  std::string kind;
  const auto add = [&](bool is_used, const std::string& name) {
    if (is_used) kind += (kind.empty() ? "" : " x ") + name;
  };
  add(layout.data > 1, "data");
  add(layout.shard > 1, "shard");
  add(layout.expert > 1, "expert");
  add(layout.pipeline > 1, "pipeline");
  add(layout.context > 1, "context");
  add(layout.tensor > 1, "tensor");
  return kind.empty() ? "one device" : kind;
}

std::string text_of(const PlannedLayout& layout) {
  std::string text = layout.mesh();
  if (layout.stage > 0) text += ", stage " + std::to_string(layout.stage);
  if (layout.pipeline > 1) text += ", " + layout.schedule;
  if (layout.schedule == "interleaved") text += " of " + std::to_string(layout.stages_per_rank);
  if (layout.micro_batches > 1) text += ", " + std::to_string(layout.micro_batches) + " micro-batches";
  if (layout.recomputes) text += ", recomputation";
  return text;
}

std::vector<PlannedChoice> layouts_to_measure(const LayoutPlanner& planner, size_t most) {
  std::vector<PlannedChoice> all;
  for_each_layout(planner, {}, [&](const PlannedLayout& layout) {
    const auto memory = planner.memory(layout);
    if (memory.peak() <= planner.cluster().memory_bytes)
      all.push_back({layout, memory, planner.time(layout)});
  });
  const auto is_before = [](const PlannedChoice& a, const PlannedChoice& b) {
    const double first = a.time.seconds(), second = b.time.seconds();
    return first != second ? first < second : a.memory.peak() < b.memory.peak();
  };
  std::stable_sort(all.begin(), all.end(), is_before);
  if (all.empty()) return all;
  // The first is the one that users are told to run.
  const auto told = search_layouts(planner, {.most_ranked = 1, .most_unfit = 0}).ranked.at(0).layout;
  const auto of_search = std::find_if(all.begin(), all.end(),
                                      [&](const PlannedChoice& choice) { return choice.layout == told; });
  std::rotate(all.begin(), of_search, of_search + 1);
  // Half of the places are for the best of each kind; most of the others are for other ways near the first.
  const auto& first = all.front().layout;
  std::vector<PlannedChoice> chosen;
  std::set<std::string> kinds, ways, neighbours;
  size_t num_kinds = 0, num_others = 0;
  for (const auto& choice : all) {
    const auto& layout = choice.layout;
    const bool is_slow = choice.time.seconds() > kSlowest * all.front().time.seconds();
    const bool is_new_kind = kinds.insert(kind_of(layout)).second;
    const bool is_new_way = ways.insert(way_of(layout)).second;
    const bool is_neighbour =
        !is_new_way && way_of(layout) == way_of(first) && neighbours.size() < most / 4 &&
        (layout.pipeline > 1 ? layout.schedule != first.schedule && neighbours.insert(layout.schedule).second
                             : neighbours.insert(std::to_string(layout.micro_batches)).second);
    if (is_slow || chosen.size() == most) break;
    if (is_new_kind && num_kinds < (most + 1) / 2) {
      ++num_kinds;
    } else if ((is_new_way || is_neighbour) && num_others < most / 2) {
      ++num_others;
    } else {
      continue;
    }
    chosen.push_back(choice);
  }
  return chosen;
}

}  // namespace lockstep::benchmarks
