#include "lockstep/datasets/tokens/internal/token_choice.h"

#include <cmath>

namespace lockstep {
namespace {

/// Returns a share of 2^64, at most the largest number that is below it.
uint64_t threshold_of(double share) {
  constexpr double kWhole = 0x1p64;
  return share * kWhole >= kWhole ? UINT64_MAX : static_cast<uint64_t>(share * kWhole);
}

}  // namespace

TokenChoice::TokenChoice(const std::vector<TokenWeight>& weights) {
  double sum = 0;
  for (const auto& [token, weight] : weights) sum += weight;
  options_.reserve(weights.size());
  for (const auto& [token, weight] : weights) {
    options_.push_back({token, weight / sum});
    entropy_ -= weight / sum * std::log(weight / sum);
  }

  const size_t count = options_.size();
  std::vector<double> shares(count);  // of a column, which holds 1 / count
  std::vector<size_t> small;
  std::vector<size_t> large;
  for (size_t i = 0; i < count; ++i) {
    shares[i] = options_[i].probability * static_cast<double>(count);
    (shares[i] < 1 ? small : large).push_back(i);
  }
  columns_.resize(count);
  while (!small.empty() && !large.empty()) {
    const size_t filled = small.back();
    const size_t filler = large.back();
    small.pop_back();
    columns_[filled] = {threshold_of(shares[filled]), options_[filled].token, options_[filler].token};
    shares[filler] -= 1 - shares[filled];
    if (shares[filler] < 1) {
      large.pop_back();
      small.push_back(filler);
    }
  }
  // Rounding leaves columns in either list that are full.
  for (const auto& rest : {small, large})
    for (const size_t i : rest) columns_[i] = {UINT64_MAX, options_[i].token, options_[i].token};
}

double TokenChoice::probability(uint32_t token) const {
  for (const auto& option : options_)
    if (option.token == token) return option.probability;
  return 0;
}

}  // namespace lockstep
