#include "lockstep/training/reporting/records/rank_memory.h"

#include <algorithm>
#include <array>
#include <functional>

#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep {
namespace {

constexpr const char* kPredicted = "predicted_";

using PartValue = std::optional<int64_t>;

struct Part {
  const char* name;
  PartValue (*get)(const MemoryParts&);
  void (*set)(MemoryParts&, int64_t);
};

constexpr std::array<Part, 5> kParts{{
    {"parameters", [](const MemoryParts& of) { return PartValue(of.parameters); },
     [](MemoryParts& of, int64_t bytes) { of.parameters = bytes; }},
    {"gradients", [](const MemoryParts& of) { return PartValue(of.gradients); },
     [](MemoryParts& of, int64_t bytes) { of.gradients = bytes; }},
    {"optimizer_state", [](const MemoryParts& of) { return of.optimizer_state; },
     [](MemoryParts& of, int64_t bytes) { of.optimizer_state = bytes; }},
    {"buckets", [](const MemoryParts& of) { return PartValue(of.buckets); },
     [](MemoryParts& of, int64_t bytes) { of.buckets = bytes; }},
    {"gathered_units", [](const MemoryParts& of) { return PartValue(of.gathered_units); },
     [](MemoryParts& of, int64_t bytes) { of.gathered_units = bytes; }},
}};

/// Returns nothing for values that are no numbers of bytes.
std::optional<int64_t> bytes_in(const MetricRow& row, const std::string& name) {
  constexpr int64_t kMost = int64_t{1} << 60;
  for (const auto& [key, value] : row) {
    const auto* number = std::get_if<int64_t>(&value);
    if (key == name && number != nullptr && *number >= 0 && *number <= kMost) return *number;
  }
  return std::nullopt;
}

/// Returns nothing if a rank does not know the part, and for predictions if a rank has none.
std::optional<RankMemoryPart> part_of_ranks(const std::vector<RankMemory>& ranks, const std::string& name,
                                            const std::function<PartValue(const MemoryParts&)>& get) {
  RankMemoryPart part{.name = name, .predicted = 0};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const PartValue bytes = get(ranks[i].measured);
    if (!bytes) return std::nullopt;
    part.least = i == 0 ? *bytes : std::min(part.least, *bytes);
    part.most = std::max(part.most, *bytes);
    const PartValue expected = ranks[i].predicted ? get(*ranks[i].predicted) : std::nullopt;
    if (part.predicted) part.predicted = expected ? std::max(part.predicted, expected) : std::nullopt;
  }
  return part;
}

}  // namespace

MetricRow metric_row(const RankMemory& memory) {
  MetricRow row{{"rank", memory.rank}};
  const auto add = [&](const std::string& prefix, const MemoryParts& parts) {
    for (const Part& part : kParts) {
      if (const PartValue bytes = part.get(parts)) row.emplace_back(prefix + part.name, *bytes);
    }
  };
  add("", memory.measured);
  if (memory.predicted) add(kPredicted, *memory.predicted);
  return row;
}

RankMemory rank_memory_of(const MetricRow& row) {
  RankMemory memory{.rank = bytes_in(row, "rank").value_or(0)};
  for (const Part& part : kParts) {
    if (const auto bytes = bytes_in(row, part.name)) part.set(memory.measured, *bytes);
    if (const auto bytes = bytes_in(row, std::string(kPredicted) + part.name)) {
      if (!memory.predicted) memory.predicted.emplace();
      part.set(*memory.predicted, *bytes);
    }
  }
  return memory;
}

std::vector<RankMemoryPart> parts_of_ranks(const std::vector<RankMemory>& ranks) {
  std::vector<RankMemoryPart> parts;
  if (ranks.empty()) return parts;
  for (const Part& part : kParts) {
    const auto of_ranks = part_of_ranks(ranks, part.name, part.get);
    if (of_ranks && (of_ranks->most > 0 || of_ranks->predicted.value_or(0) > 0)) parts.push_back(*of_ranks);
  }
  parts.push_back(*part_of_ranks(ranks, "sum", [](const MemoryParts& of) { return PartValue(of.sum()); }));
  return parts;
}

std::vector<std::string> cells_of(const RankMemoryPart& part) {
  const auto text = [](int64_t bytes) { return bytes_text(static_cast<uint64_t>(bytes)); };
  std::string words = part.name;
  std::replace(words.begin(), words.end(), '_', ' ');
  std::string measured = text(part.least);
  if (text(part.most) != measured) measured += " to " + text(part.most);
  return {words, measured, part.predicted ? text(*part.predicted) : ""};
}

}  // namespace lockstep
