#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Weights of tokens, before they are scaled to a sum of 1.
struct TokenWeight {
  uint32_t token = 0;
  double weight = 0;
};

/// A distribution over some tokens, from which one is drawn in constant time by the alias method (Walker,
/// An Efficient Method for Generating Discrete Random Variables, 1977; built as Vose, 1991).
class TokenChoice {
 public:
  struct Option {
    uint32_t token = 0;
    double probability = 0;
  };

  TokenChoice() = default;
  /// The weights are positive.
  explicit TokenChoice(const std::vector<TokenWeight>& weights);

  const std::vector<Option>& options() const { return options_; }
  /// Returns the entropy, in nats.
  double entropy() const { return entropy_; }
  /// Returns 0 for a token that is no option.
  double probability(uint32_t token) const;
  /// Returns the token that a uniformly drawn number stands for.
  uint32_t drawn(uint64_t uniform) const {
    // The high half of the product is the column, and the low half the place in it.
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(uniform) * columns_.size();
    const Column& column = columns_[static_cast<size_t>(product >> 64)];
    return static_cast<uint64_t>(product) < column.threshold ? column.below : column.above;
  }

 private:
  struct Column {
    uint64_t threshold = 0;
    uint32_t below = 0;
    uint32_t above = 0;
  };

  std::vector<Option> options_;
  std::vector<Column> columns_;
  double entropy_ = 0;
};

}  // namespace lockstep
