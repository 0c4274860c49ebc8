#include "lockstep/strategies/pipeline/internal/pipeline_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void check_numbers(size_t blocks, size_t stages) {
  if (blocks >= stages) return;
  throw InvalidArgument("[Pipeline] expected at least one block for each of " + std::to_string(stages) +
                        " stages, but got " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks"));
}

}  // namespace

std::vector<size_t> cut_into_stages(const std::vector<double>& costs, size_t stages) {
  const size_t blocks = costs.size();
  check_numbers(blocks, stages);
  for (size_t block = 0; block < blocks; ++block) {
    if (std::isfinite(costs[block]) && costs[block] >= 0) continue;
    throw InvalidArgument("[Pipeline] expected costs of 0 or more, but got " + std::to_string(costs[block]) +
                          " of block " + std::to_string(block));
  }
  // most[s][end] is the least largest cost of s + 1 stages of the first `end` blocks.
  const auto infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> most(stages, std::vector<double>(blocks + 1, infinite));
  std::vector<std::vector<size_t>> begins(stages, std::vector<size_t>(blocks + 1, 0));
  for (size_t end = 1; end <= blocks; ++end) {
    most[0][end] = (end == 1 ? 0 : most[0][end - 1]) + costs[end - 1];
  }
  for (size_t stage = 1; stage < stages; ++stage) {
    for (size_t end = stage + 1; end <= blocks; ++end) {
      double last = 0;
      for (size_t begin = end - 1; begin >= stage; --begin) {
        last += costs[begin];
        const double largest = std::max(most[stage - 1][begin], last);
        if (largest >= most[stage][end]) continue;
        most[stage][end] = largest;
        begins[stage][end] = begin;
      }
    }
  }
  std::vector<size_t> firsts(stages, 0);
  size_t end = blocks;
  for (size_t stage = stages; stage-- > 1;) firsts[stage] = end = begins[stage][end];
  return firsts;
}

std::vector<size_t> stages_cut_at(const std::vector<size_t>& cuts, size_t blocks, size_t stages) {
  check_numbers(blocks, stages);
  if (cuts.size() + 1 != stages) {
    throw InvalidArgument("[Pipeline] expected the first blocks of " + std::to_string(stages - 1) +
                          " stages after the first, but got " + std::to_string(cuts.size()));
  }
  std::vector<size_t> firsts{0};
  for (const size_t cut : cuts) {
    if (cut <= firsts.back() || cut >= blocks) {
      throw InvalidArgument("[Pipeline] expected the first block of a stage to be from " +
                            std::to_string(firsts.back() + 1) + " to " + std::to_string(blocks - 1) +
                            ", but got " + std::to_string(cut));
    }
    firsts.push_back(cut);
  }
  return firsts;
}

}  // namespace lockstep
