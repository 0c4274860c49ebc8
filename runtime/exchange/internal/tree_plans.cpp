// Plans along a binomial tree, whose root is the collective's root.
#include <algorithm>
#include <bit>
#include <functional>

#include "lockstep/runtime/exchange/internal/plan_makers.h"

namespace lockstep::plan_makers {
namespace {

/// A rank's place in the tree. Numbers are relative to the root. A rank's subtree has the ranks that follow
/// it.
class TreePlace {
 public:
  explicit TreePlace(const Ranks& ranks)
      : ranks_(ranks), number_((ranks.rank - ranks.root + ranks.size) % ranks.size) {}

  bool is_root() const { return number_ == 0; }
  int parent() const { return rank_of(number_ - span()); }
  /// Calls `function(child, blocks)` with each child, and the blocks of the ranks in the child's subtree. The
  /// child with the largest subtree comes first.
  void for_each_child(const std::function<void(int child, BlockRanges blocks)>& function) const {
    const int all = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_.size)));
    for (int span = (is_root() ? all : this->span()) / 2; span >= 1; span /= 2) {
      if (number_ + span < ranks_.size) function(rank_of(number_ + span), blocks_of(number_ + span, span));
    }
  }
  /// Returns the blocks of the ranks in this rank's own subtree.
  BlockRanges blocks() const { return blocks_of(number_, is_root() ? ranks_.size : span()); }

 private:
  /// Returns the most ranks that the subtree of this rank, which is not the root, can have.
  int span() const { return number_ & -number_; }
  int rank_of(int number) const { return (number + ranks_.root) % ranks_.size; }
  BlockRanges blocks_of(int number, int span) const {
    return cyclic_blocks(rank_of(number), std::min(span, ranks_.size - number), ranks_.size);
  }

  const Ranks ranks_;
  const int number_;
};

}  // namespace

ExchangePlan tree_broadcast(const Ranks& ranks) {
  const TreePlace place(ranks);
  const BlockRanges all{{0, 1}};
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = 1};
  if (!place.is_root()) plan.rounds.push_back({{}, {{place.parent(), all}}, {}});
  place.for_each_child([&](int child, const BlockRanges&) {
    plan.rounds.push_back({{{child, all}}, {}, {}});
  });
  return plan;
}

ExchangePlan tree_gather(const Ranks& ranks) {
  const TreePlace place(ranks);
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = ranks.size};
  place.for_each_child([&](int child, BlockRanges blocks) {
    plan.rounds.push_back({{}, {{child, std::move(blocks)}}, {}});
  });
  // Small subtrees are complete first.
  std::reverse(plan.rounds.begin(), plan.rounds.end());
  if (!place.is_root()) plan.rounds.push_back({{{place.parent(), place.blocks()}}, {}, {}});
  return plan;
}

ExchangePlan scatter_gather_broadcast(const Ranks& ranks) {
  const TreePlace place(ranks);
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = ranks.size};
  if (!place.is_root()) plan.rounds.push_back({{}, {{place.parent(), place.blocks()}}, {}});
  place.for_each_child([&](int child, BlockRanges blocks) {
    plan.rounds.push_back({{{child, std::move(blocks)}}, {}, {}});
  });
  const auto all_gather = dissemination_all_gather(ranks);
  plan.rounds.insert(plan.rounds.end(), all_gather.rounds.begin(), all_gather.rounds.end());
  return plan;
}

}  // namespace lockstep::plan_makers
