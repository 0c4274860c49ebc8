#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/exchange/exchange_plan.h"

namespace lockstep::plan_check {

/// A fault of plans, as an exception.
struct Problem {
  std::string text;
};

/// Throws a Problem with the text that the parts make.
template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  const auto text = [](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      return std::to_string(part);
    } else {
      return std::string(part);
    }
  };
  throw Problem{(text(parts) + ...)};
}

/// Sums of ranks' values, as trees. Equal trees have equal numbers.
class SumTrees {
 public:
  explicit SumTrees(int num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) ranges_.push_back({{rank, 1}});
  }

  int leaf(int rank) const { return rank; }
  /// Addition is commutative, but not associative.
  int add(int left, int right) {
    const std::pair<int, int> key = std::minmax(left, right);
    // Blocks of one message mostly have the same sum.
    if (key == last_key_) return last_sum_;
    last_key_ = key;
    const auto known = sums_.find(key);
    if (known != sums_.end()) return last_sum_ = known->second;
    const int sum = static_cast<int>(ranges_.size());
    ranges_.push_back(merged(ranges_[static_cast<size_t>(left)], ranges_[static_cast<size_t>(right)]));
    sums_.emplace(key, sum);
    return last_sum_ = sum;
  }
  int num_ranks(int tree) const { return count_blocks(ranges_[static_cast<size_t>(tree)]); }

 private:
  static BlockRanges merged(const BlockRanges& left, const BlockRanges& right) {
    BlockRanges all = left;
    all.insert(all.end(), right.begin(), right.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    BlockRanges joined;
    for (const auto& range : all) {
      const int end = joined.empty() ? 0 : joined.back().first + joined.back().count;
      if (range.first < end) fail("the value of rank ", range.first, " is added twice");
      if (!joined.empty() && range.first == end) {
        joined.back().count += range.count;
      } else {
        joined.push_back(range);
      }
    }
    return joined;
  }

  std::vector<BlockRanges> ranges_;  // of the ranks in each tree
  std::map<std::pair<int, int>, int> sums_;
  std::pair<int, int> last_key_{-1, -1};
  int last_sum_ = -1;
};

}  // namespace lockstep::plan_check
