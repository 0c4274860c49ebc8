#include "lockstep/tests/runtime/exchange/plan_check.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "lockstep/tests/runtime/exchange/sum_trees.h"

namespace lockstep {
namespace {

using plan_check::fail;
using plan_check::Problem;
using plan_check::SumTrees;

/// The content of a block: block `block` of a sum of ranks' values, or nothing.
struct Symbol {
  int block = -1;
  int tree = -1;

  bool is_set() const { return block >= 0; }
  bool operator==(const Symbol&) const = default;
};

class Run {
 public:
  Run(const std::vector<ExchangePlan>& plans, CollectiveKind kind, PlanAlgorithm algorithm, int root)
      : plans_(plans),
        kind_(kind),
        algorithm_(algorithm),
        root_(root),
        trees_(static_cast<int>(plans.size())) {}

  void check() {
    for (int rank = 0; rank < size(); ++rank) {
      const auto& plan = plan_of(rank);
      if (plan.rank != rank || plan.size != size()) fail("rank ", rank, " has the plan of another");
      if (plan.num_blocks != plan_of(0).num_blocks) fail("rank ", rank, " has another number of blocks");
      for (const int like : plan.scratch_like) check_block(rank, like, plan.num_blocks);
    }
    match();
    begin();
    carry_out();
    for (int rank = 0; rank < size(); ++rank) check_result(rank);
  }

 private:
  int size() const { return static_cast<int>(plans_.size()); }
  const ExchangePlan& plan_of(int rank) const { return plans_[static_cast<size_t>(rank)]; }
  Symbol& block_of(int rank, int block) {
    return blocks_[static_cast<size_t>(rank)][static_cast<size_t>(block)];
  }

  static void check_block(int rank, int block, int count) {
    if (block < 0 || block >= count) fail("rank ", rank, " has no block ", block);
  }

  static std::vector<int> listed(const BlockRanges& ranges) {
    std::vector<int> blocks;
    blocks.reserve(static_cast<size_t>(count_blocks(ranges)));
    for (const auto& range : ranges) {
      for (int i = 0; i < range.count; ++i) blocks.push_back(range.first + i);
    }
    return blocks;
  }

  /// Returns the number of the block whose size a block has. Values of all-to-all may have any size.
  int size_class(int rank, int block) const {
    const auto& plan = plan_of(rank);
    const int like =
        block < plan.num_blocks ? block : plan.scratch_like[static_cast<size_t>(block - plan.num_blocks)];
    return kind_ == CollectiveKind::kAllToAll ? 0 : like;
  }

  /// Whether a message's blocks have the sizes of those that it is received into.
  bool are_alike(int sender, const BlockRanges& sent, int receiver, const BlockRanges& received) const {
    const int num_blocks = plan_of(0).num_blocks;
    const auto is_scratch = [&](const BlockRange& range) { return range.first + range.count > num_blocks; };
    if (sent == received && std::none_of(sent.begin(), sent.end(), is_scratch)) return true;
    const auto from = listed(sent);
    const auto into = listed(received);
    bool is_same = from.size() == into.size();
    for (size_t k = 0; is_same && k < from.size(); ++k)
      is_same = size_class(sender, from[k]) == size_class(receiver, into[k]);
    return is_same;
  }

  /// Finds the round in which the peer of each message has its part in it.
  void match() {
    std::map<std::pair<int, int>, std::vector<std::pair<size_t, BlockRanges>>> sent, received;
    for (int rank = 0; rank < size(); ++rank) {
      const auto& rounds = plan_of(rank).rounds;
      for (size_t round = 0; round < rounds.size(); ++round) {
        const auto check = [&](int peer, const BlockRanges& ranges) {
          if (peer < 0 || peer >= size() || peer == rank)
            fail("rank ", rank, " exchanges with rank ", peer, " in round ", round);
          const auto& plan = plan_of(rank);
          for (const auto& range : ranges) {
            for (const int block : {range.first, range.first + range.count - 1})
              check_block(rank, block, plan.num_blocks + plan.num_scratch());
          }
        };
        for (const auto& send : rounds[round].sends) {
          check(send.peer, send.blocks);
          sent[{rank, send.peer}].emplace_back(round, send.blocks);
        }
        for (const auto& receive : rounds[round].receives) {
          check(receive.peer, receive.blocks);
          received[{receive.peer, rank}].emplace_back(round, receive.blocks);
        }
      }
    }
    for (const auto& [ranks, messages] : received) {
      if (sent[ranks].size() < messages.size())
        fail("rank ", ranks.second, " receives a message that rank ", ranks.first, " does not send");
    }
    for (const auto& [ranks, messages] : sent) {
      const auto& there = received[ranks];
      if (there.size() < messages.size())
        fail("rank ", ranks.first, " sends a message that rank ", ranks.second, " does not receive");
      for (size_t i = 0; i < messages.size(); ++i) {
        if (!are_alike(ranks.first, messages[i].second, ranks.second, there[i].second))
          fail("rank ", ranks.first, " and rank ", ranks.second, " have different blocks in message ", i);
        needs_[{ranks.first, messages[i].first}].emplace_back(ranks.second, there[i].first);
        needs_[{ranks.second, there[i].first}].emplace_back(ranks.first, messages[i].first);
      }
    }
  }

  void begin() {
    blocks_.resize(plans_.size());
    for (int rank = 0; rank < size(); ++rank) {
      const auto& plan = plan_of(rank);
      blocks_[static_cast<size_t>(rank)].resize(static_cast<size_t>(plan.num_blocks + plan.num_scratch()));
      for (int block = 0; block < plan.num_blocks; ++block) {
        bool has_value = true;
        switch (kind_) {
          case CollectiveKind::kAllReduce:
          case CollectiveKind::kReduceScatter:
            break;
          case CollectiveKind::kAllGather:
          case CollectiveKind::kGather:
            has_value = block == rank;
            break;
          case CollectiveKind::kBroadcast:
            has_value = rank == root_;
            break;
          case CollectiveKind::kAllToAll:
            has_value = block < size();
            break;
        }
        if (has_value) block_of(rank, block) = {block, trees_.leaf(rank)};
      }
    }
  }

  void carry_out() {
    current_.assign(plans_.size(), 0);
    std::deque<int> ready;
    for (int rank = 0; rank < size(); ++rank) {
      send(rank);
      ready.push_back(rank);
    }
    // A rank whose peers are not ready is looked at again when one of them gets there.
    std::vector<std::set<int>> waiting(plans_.size());
    while (!ready.empty()) {
      const int rank = ready.front();
      ready.pop_front();
      while (current_[static_cast<size_t>(rank)] < plan_of(rank).rounds.size()) {
        const auto round = current_[static_cast<size_t>(rank)];
        const auto& needs = needs_[{rank, round}];
        const auto missing = std::find_if(needs.begin(), needs.end(), [&](const auto& need) {
          return current_[static_cast<size_t>(need.first)] < need.second;
        });
        if (missing != needs.end()) {
          waiting[static_cast<size_t>(missing->first)].insert(rank);
          break;
        }
        finish(rank);
        ++current_[static_cast<size_t>(rank)];
        send(rank);
        for (const int other : std::exchange(waiting[static_cast<size_t>(rank)], {})) ready.push_back(other);
      }
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (current_[static_cast<size_t>(rank)] < plan_of(rank).rounds.size())
        fail("rank ", rank, " waits for ever in round ", current_[static_cast<size_t>(rank)]);
    }
  }

  const PlanRound& round_of(int rank) const {
    return plan_of(rank).rounds[current_[static_cast<size_t>(rank)]];
  }

  /// Begins the current round, and puts its messages on their way.
  void send(int rank) {
    if (current_[static_cast<size_t>(rank)] == plan_of(rank).rounds.size()) return;
    const auto& round = round_of(rank);
    const auto& blocks = blocks_[static_cast<size_t>(rank)];
    std::vector<bool> received(blocks.size());
    for (const auto& receive : round.receives) {
      for (const int block : listed(receive.blocks)) {
        if (received[static_cast<size_t>(block)])
          fail("rank ", rank, " receives block ", block, " twice in a round");
        received[static_cast<size_t>(block)] = true;
      }
    }
    for (const auto& sent : round.sends) {
      auto& message = on_their_way_[{rank, sent.peer}].emplace_back();
      message.reserve(static_cast<size_t>(count_blocks(sent.blocks)));
      const bool is_alike =
          round.sends.size() == 1 && round.receives.size() == 1 && round.receives[0].blocks == sent.blocks;
      for (const int block : listed(sent.blocks)) {
        const auto& value = blocks[static_cast<size_t>(block)];
        if (!value.is_set()) fail("rank ", rank, " sends block ", block, ", which has no value");
        message.push_back(value);
        if (!is_alike && received[static_cast<size_t>(block)])
          fail("rank ", rank, " receives into block ", block, " while it sends it");
      }
    }
  }

  /// Finishes the current round.
  void finish(int rank) {
    const auto& round = round_of(rank);
    for (const auto& receive : round.receives) {
      auto& messages = on_their_way_[{receive.peer, rank}];
      size_t i = 0;
      for (const int block : listed(receive.blocks))
        put(rank, block, messages.front()[i++], receive.is_added);
      messages.pop_front();
    }
    for (const auto& step : round.steps) {
      const auto& plan = plan_of(rank);
      for (const int block : {step.into, step.from})
        check_block(rank, block, plan.num_blocks + plan.num_scratch());
      if (size_class(rank, step.into) != size_class(rank, step.from))
        fail("rank ", rank, " puts block ", step.from, " into block ", step.into, " of another size");
      if (!block_of(rank, step.from).is_set())
        fail("rank ", rank, " reads block ", step.from, ", which has no value");
      put(rank, step.into, block_of(rank, step.from), step.is_added);
    }
  }

  void put(int rank, int block, const Symbol& value, bool is_added) {
    auto& into = block_of(rank, block);
    if (!is_added) {
      into = value;
      return;
    }
    if (!into.is_set()) fail("rank ", rank, " adds to block ", block, ", which has no value");
    if (into.block != value.block) fail("rank ", rank, " adds block ", value.block, " to block ", into.block);
    into.tree = trees_.add(into.tree, value.tree);
  }

  void check_result(int rank) {
    for (int block = 0; block < plan_of(rank).num_blocks; ++block) {
      Symbol expected;
      switch (kind_) {
        case CollectiveKind::kReduceScatter:
          if (block != rank) continue;
          [[fallthrough]];
        case CollectiveKind::kAllReduce: {
          const auto& sum = block_of(rank, block);
          if (!sum.is_set() || sum.block != block || trees_.num_ranks(sum.tree) != size())
            fail("rank ", rank, " has no complete sum in block ", block);
          if (has_fixed_order(kind_, algorithm_) && sum.tree != ordered_sum())
            fail("rank ", rank, " has a sum in another order in block ", block);
          continue;
        }
        case CollectiveKind::kGather:
          if (rank != root_) continue;
          [[fallthrough]];
        case CollectiveKind::kAllGather:
          expected = {block, trees_.leaf(block)};
          break;
        case CollectiveKind::kBroadcast:
          expected = {block, trees_.leaf(root_)};
          break;
        case CollectiveKind::kAllToAll:
          if (block < size()) continue;
          expected = {rank, trees_.leaf(block - size())};
          break;
      }
      if (block_of(rank, block) != expected) fail("rank ", rank, " has a wrong value in block ", block);
    }
  }

  int ordered_sum() {
    if (ordered_sum_ < 0) {
      std::vector<int> sums;
      for (int rank = 0; rank < size(); ++rank) sums.push_back(trees_.leaf(rank));
      for (const auto& step : sum_order(size())) {
        auto& into = sums[static_cast<size_t>(step.into)];
        into = trees_.add(into, sums[static_cast<size_t>(step.from)]);
      }
      ordered_sum_ = sums[0];
    }
    return ordered_sum_;
  }

  const std::vector<ExchangePlan>& plans_;
  const CollectiveKind kind_;
  const PlanAlgorithm algorithm_;
  const int root_;
  SumTrees trees_;
  int ordered_sum_ = -1;
  std::vector<std::vector<Symbol>> blocks_;  // of each rank
  std::vector<size_t> current_;              // round of each rank
  std::map<std::pair<int, int>, std::deque<std::vector<Symbol>>> on_their_way_;
  // For each rank and round, the peers with their rounds that must have begun before it can end.
  std::map<std::pair<int, size_t>, std::vector<std::pair<int, size_t>>> needs_;
};

}  // namespace

std::string problem_of(const std::vector<ExchangePlan>& plans, CollectiveKind kind, PlanAlgorithm algorithm,
                       int root) {
  try {
    Run(plans, kind, algorithm, root).check();
    return "";
  } catch (const Problem& problem) {
    return problem.text;
  }
}

std::vector<ExchangePlan> plans_of(CollectiveKind kind, PlanAlgorithm algorithm, int size, int root) {
  std::vector<ExchangePlan> plans;
  for (int rank = 0; rank < size; ++rank) plans.push_back(make_plan(kind, algorithm, rank, size, root));
  return plans;
}

}  // namespace lockstep
