#include "lockstep/training/layouts/layout_search.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0) divisors.push_back(divisor);
  return divisors;
}

/// Enumerates layouts: meshes first, then what can be done with each.
class LayoutEnumeration {
 public:
  LayoutEnumeration(const LayoutPlanner& planner, const LayoutChoices& choices,
                    const std::function<void(const PlannedLayout&)>& visit)
      : planner_(planner), choices_(choices), visit_(visit) {}

  void run() {
    cut_model();
    if (planner_.model().tables.empty()) return;
    const auto& cluster = planner_.cluster();
    std::set<int64_t> counts;
    if (cluster.server_memory_bytes > 0) {
      constexpr int64_t kMostOfMachine = 4;
      for (const int64_t machines : divisors_of(cluster.machines())) counts.insert(machines);
      for (int64_t each = 2; each <= kMostOfMachine; each *= 2) counts.insert(each * cluster.machines());
    } else {
      for (int64_t servers = 1; servers < cluster.devices; servers *= 2) counts.insert(servers);
    }
    for (const int64_t servers : counts) {
      servers_ = servers;
      cut_model();
    }
  }

 private:
  void cut_model() {
    const auto& model = planner_.model();
    const int64_t devices = planner_.cluster().devices_for_ranks({.servers = servers_});
    for (const int64_t tensor : divisors_of(devices)) {
      if (tensor > 1 && (model.cut_sizes.empty() || tensor > choices_.most_tensor)) continue;
      for (const int64_t context : divisors_of(devices / tensor)) {
        if (context > 1 && (model.sequence_length == 0 || context > choices_.most_context)) continue;
        for (const int64_t pipeline : divisors_of(devices / tensor / context)) {
          const bool is_too_deep =
              pipeline > choices_.most_pipeline || pipeline > static_cast<int64_t>(model.parts.size());
          if (pipeline > 1 && is_too_deep) continue;
          layout_ = {.pipeline = pipeline, .context = context, .tensor = tensor, .servers = servers_};
          const int64_t cuts = tensor * context;
          layout_.has_sequence_shards =
              tensor > 1 && model.sequence_length > 0 && model.sequence_length % cuts == 0;
          divide_replicas(devices / tensor / context / pipeline);
        }
      }
    }
  }

  void divide_replicas(int64_t replicas) {
    for (const int64_t inner : divisors_of(replicas)) {
      layout_.data = replicas / inner;
      layout_.shard = inner;
      layout_.expert = 1;
      for (const int stage : choices_.stages) {
        layout_.stage = stage;
        if ((inner > 1) == (stage > 0)) choose_micro_batches();
      }
      if (inner == 1 || planner_.model().experts == 0) continue;
      divide_experts(replicas, inner);
    }
  }

  /// Stages 1 and 2 are along "shard", or along "expert" without it, as is stage 3.
  void divide_experts(int64_t replicas, int64_t experts) {
    for (const int64_t shard : divisors_of(replicas / experts)) {
      layout_.data = replicas / experts / shard;
      layout_.shard = shard;
      layout_.expert = experts;
      for (const int stage : choices_.stages) {
        layout_.stage = stage;
        if (shard > 1 ? stage == 1 || stage == 2 : true) choose_micro_batches();
      }
    }
  }

  void choose_micro_batches() {
    const int64_t replicas = layout_.replicas();
    const int64_t examples = (planner_.training().global_batch + replicas - 1) / replicas;
    std::set<int64_t> counts{1};
    for (int64_t size = 1; size < examples; size *= 2) counts.insert((examples + size - 1) / size);
    for (const int64_t count : counts) {
      if (count > choices_.most_micro_batches) continue;
      layout_.micro_batches = count;
      choose_schedule();
    }
  }

  void choose_schedule() {
    layout_.stages_per_rank = 1;
    layout_.schedule = PlannedLayout().schedule;
    if (layout_.pipeline == 1) return choose_recomputation();
    for (const auto& schedule : choices_.schedules) {
      layout_.schedule = schedule;
      layout_.stages_per_rank = schedule == "zb-v" ? 2 : 1;
      if (schedule != "interleaved") {
        choose_recomputation();
        continue;
      }
      for (const int64_t stages : choices_.stages_per_rank) {
        layout_.stages_per_rank = stages;
        choose_recomputation();
      }
    }
  }

  void choose_recomputation() {
    for (const bool recomputes : {false, true}) {
      if (recomputes && !choices_.with_recomputation) continue;
      layout_.recomputes = recomputes;
      if (!planner_.refusal(layout_)) visit_(layout_);
    }
  }

  const LayoutPlanner& planner_;
  const LayoutChoices& choices_;
  const std::function<void(const PlannedLayout&)>& visit_;
  int64_t servers_ = 0;
  PlannedLayout layout_;
};

/// A layout before its pipeline is simulated.
struct Candidate {
  PlannedLayout layout;
  LayoutMemory memory;
  double least_seconds = 0;
};

/// Whether a device has as much memory, and each server has what it needs.
bool has_room(const LayoutPlanner& planner, const PlannedLayout& layout, const LayoutMemory& memory) {
  const auto& cluster = planner.cluster();
  if (memory.peak() > cluster.memory_bytes) return false;
  if (layout.servers == 0 || cluster.server_memory_bytes == 0) return true;
  return planner.memory_of_ranks(layout).back().peak() <= cluster.server_memory_bytes;
}

/// The same, after an estimate that is close to the limit has been replaced by the exact memory.
bool seems_to_fit(const LayoutPlanner& planner, const PlannedLayout& layout, LayoutMemory& memory) {
  constexpr double kSure = 1.5;  // Estimates are within a fifth of the exact memory, but for tiny models.
  const double share = memory.peak() / planner.cluster().memory_bytes;
  if (planner.has_memory_function() && share > 1 / kSure && share < kSure) memory = planner.memory(layout);
  return has_room(planner, layout, memory);
}

bool is_before(const PlannedChoice& a, const PlannedChoice& b) {
  const double first = a.time.seconds(), second = b.time.seconds();
  return first != second ? first < second : a.memory.peak() < b.memory.peak();
}

/// The shortest list of fastest layouts, with the simplest of those that are about as fast as the first.
class Ranking {
 public:
  explicit Ranking(size_t most) : most_(most) {}

  /// Whether no layout that takes as long would be in the list.
  bool excludes(double seconds) const {
    return ranked_.size() == most_ && seconds > ranked_.back().time.seconds() && !is_tie(seconds);
  }
  void add(PlannedChoice choice) {
    if (ranked_.empty() || is_tie(choice.time.seconds())) ties_.push_back(choice);
    ranked_.insert(std::upper_bound(ranked_.begin(), ranked_.end(), choice, is_before), std::move(choice));
    if (ranked_.size() > most_) ranked_.pop_back();
  }
  std::vector<PlannedChoice> take() && {
    if (ranked_.empty()) return {};
    std::erase_if(ties_, [this](const auto& choice) { return !is_tie(choice.time.seconds()); });
    std::stable_sort(ties_.begin(), ties_.end(), is_before);
    const auto simplest = std::min_element(ties_.begin(), ties_.end(), [](const auto& a, const auto& b) {
      return complexity_of(a.layout) < complexity_of(b.layout);
    });
    std::erase_if(ranked_, [&](const auto& choice) { return choice.layout == simplest->layout; });
    ranked_.insert(ranked_.begin(), std::move(*simplest));
    if (ranked_.size() > most_) ranked_.pop_back();
    return std::move(ranked_);
  }

 private:
  bool is_tie(double seconds) const { return seconds <= 1.01 * ranked_.front().time.seconds(); }
  /// Returns how far a layout is from replicas that each have everything.
  static int complexity_of(const PlannedLayout& layout) {
    return num_changes(layout, {.data = layout.ranks()});
  }

  const size_t most_;
  std::vector<PlannedChoice> ranked_;
  std::vector<PlannedChoice> ties_;
};

/// Simulates candidates, which are sorted by their bounds, until no other one can be among the first.
std::vector<PlannedChoice> fastest_of(const LayoutPlanner& planner, const std::vector<Candidate>& fit,
                                      size_t most) {
  Ranking ranking(most);
  for (const auto& candidate : fit) {
    if (ranking.excludes(candidate.least_seconds)) break;
    PlannedChoice choice{candidate.layout, candidate.memory, planner.time(candidate.layout)};
    if (planner.has_memory_function()) {
      if (ranking.excludes(choice.time.seconds())) continue;
      choice.memory = planner.memory(candidate.layout);
      if (!has_room(planner, choice.layout, choice.memory)) continue;
    }
    ranking.add(std::move(choice));
  }
  return std::move(ranking).take();
}

/// Returns the one with the fewest changes; of several, the first.
std::optional<PlannedLayout> nearest(const LayoutPlanner& planner, const PlannedLayout& layout,
                                     const std::vector<Candidate>& fit) {
  std::vector<const PlannedLayout*> sorted;
  sorted.reserve(fit.size());
  for (const auto& candidate : fit) sorted.push_back(&candidate.layout);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) {
    return num_changes(layout, *a) < num_changes(layout, *b);
  });
  for (const auto* other : sorted) {
    if (!planner.has_memory_function() || has_room(planner, *other, planner.memory(*other))) return *other;
  }
  return std::nullopt;
}

}  // namespace

void for_each_layout(const LayoutPlanner& planner, const LayoutChoices& choices,
                     const std::function<void(const PlannedLayout&)>& visit) {
  LayoutEnumeration(planner, choices, visit).run();
}

LayoutSearch search_layouts(const LayoutPlanner& planner, const SearchOptions& options) {
  if (options.most_ranked == 0)
    throw InvalidArgument("[search_layouts] expected 1 or more layouts to rank, but got 0");
  LayoutSearch search;
  std::vector<Candidate> fit, unfit;
  for_each_layout(planner, options.choices, [&](const PlannedLayout& layout) {
    if (!options.mesh.empty() && layout.mesh() != options.mesh) return;
    ++search.num_candidates;
    LayoutMemory memory = planner.estimated_memory(layout);
    auto& list = seems_to_fit(planner, layout, memory) ? fit : unfit;
    list.push_back({layout, memory, planner.least_seconds(layout)});
  });
  const auto is_faster = [](const auto& a, const auto& b) { return a.least_seconds < b.least_seconds; };
  std::stable_sort(fit.begin(), fit.end(), is_faster);
  std::stable_sort(unfit.begin(), unfit.end(), is_faster);
  search.num_fit = fit.size();
  search.ranked = fastest_of(planner, fit, options.most_ranked);
  if (search.ranked.empty()) {  // Estimates may have been too low.
    search.num_fit = 0;
    unfit.insert(unfit.end(), std::make_move_iterator(fit.begin()), std::make_move_iterator(fit.end()));
    fit.clear();
  }
  if (fit.empty() && !unfit.empty()) {
    const auto& [layout, memory, seconds] =
        *std::min_element(unfit.begin(), unfit.end(),
                          [](const auto& a, const auto& b) { return a.memory.peak() < b.memory.peak(); });
    search.smallest = {layout, planner.memory(layout), seconds, std::nullopt};
  }
  // One of each way to cut the model.
  std::set<std::vector<int64_t>> cuts;
  for (const auto& [layout, memory, seconds] : unfit) {
    if (search.unfit.size() == options.most_unfit) break;
    if (cuts.insert({layout.expert, layout.pipeline, layout.context, layout.tensor, layout.servers}).second)
      search.unfit.push_back({layout, planner.memory(layout), seconds, nearest(planner, layout, fit)});
  }
  return search;
}

std::optional<PlannedLayout> nearest_that_fits(const LayoutPlanner& planner, const PlannedLayout& layout,
                                               const LayoutChoices& choices) {
  std::vector<Candidate> fit;
  for_each_layout(planner, choices, [&](const PlannedLayout& other) {
    LayoutMemory memory = planner.estimated_memory(other);
    if (seems_to_fit(planner, other, memory)) fit.push_back({other, memory, planner.least_seconds(other)});
  });
  std::stable_sort(fit.begin(), fit.end(),
                   [](const auto& a, const auto& b) { return a.least_seconds < b.least_seconds; });
  return nearest(planner, layout, fit);
}

int num_changes(const PlannedLayout& a, const PlannedLayout& b) {
  int changes = 0;
  for (const auto axis :
       {&PlannedLayout::data, &PlannedLayout::shard, &PlannedLayout::expert, &PlannedLayout::pipeline,
        &PlannedLayout::context, &PlannedLayout::tensor, &PlannedLayout::micro_batches})
    changes += a.*axis != b.*axis ? 1 : 0;
  changes += a.stage != b.stage ? 1 : 0;
  changes += a.recomputes != b.recomputes ? 1 : 0;
  changes += a.servers != b.servers ? 1 : 0;
  changes += a.schedule != b.schedule || a.stages_per_rank != b.stages_per_rank ? 1 : 0;
  return changes;
}

}  // namespace lockstep
