#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/exchange/exchange_engine.h"
#include "lockstep/runtime/exchange/plan_costs.h"

namespace lockstep {

/// Adds doubles, which need not be aligned.
inline void add_doubles(uint8_t* into, const uint8_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    double value = 0;
    std::memcpy(&sum, into + i * sizeof(double), sizeof(double));
    std::memcpy(&value, from + i * sizeof(double), sizeof(double));
    sum += value;
    std::memcpy(into + i * sizeof(double), &sum, sizeof(double));
  }
}

/// The values of a rank. Their sum depends on the order in which they are added. Fewer values are the first
/// ones of more. Any thread may call it.
std::vector<double> values_of(int rank, size_t count);

/// The sum of the values of ranks 0 to `size` - 1, in the order of sum_order().
std::vector<double> ordered_sum(int size, size_t count);

/// Memory for a plan's blocks, which divide `values` evenly.
class PlanMemory {
 public:
  PlanMemory(const ExchangePlan& plan, std::vector<double> values) : values_(std::move(values)) {
    auto* data = reinterpret_cast<uint8_t*>(values_.data());
    for (const int64_t bytes : even_blocks(static_cast<int64_t>(values_.size() * sizeof(double)),
                                           plan.num_blocks, sizeof(double))) {
      blocks_.emplace_back(data, static_cast<size_t>(bytes));
      data += bytes;
    }
    for (const int like : plan.scratch_like) {
      scratch_.emplace_back(blocks_[static_cast<size_t>(like)].size() / sizeof(double));
      blocks_.emplace_back(reinterpret_cast<uint8_t*>(scratch_.back().data()),
                           blocks_[static_cast<size_t>(like)].size());
    }
  }

  const std::vector<double>& values() const { return values_; }
  const std::vector<std::span<uint8_t>>& blocks() const { return blocks_; }
  std::vector<double> block(int number) const {
    const auto bytes = blocks_[static_cast<size_t>(number)];
    std::vector<double> values(bytes.size() / sizeof(double));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  std::vector<double> values_;
  std::vector<std::vector<double>> scratch_;
  std::vector<std::span<uint8_t>> blocks_;
};

/// Returns the call of a collective in memory.
inline ExchangeCall call_of(const ExchangePlan& plan, const PlanMemory& memory, uint64_t sequence,
                            const std::string& description = "sum of doubles") {
  return {.description = description,
          .sequence = sequence,
          .plan = &plan,
          .blocks = memory.blocks(),
          .combine = add_doubles,
          .element_bytes = sizeof(double)};
}

}  // namespace lockstep
