#pragma once

#include <string>
#include <vector>

#include "lockstep/runtime/exchange/exchange_plan.h"

namespace lockstep {

/// Collectives for which there are plans. Blocks are those of every rank before and after.
///
/// | collective | blocks | before | after |
/// |---|---|---|---|
/// | all-reduce | any number | its values | the sums over all ranks |
/// | reduce-scatter | one for each rank | its values | its own block has the sum |
/// | all-gather | one for each rank | its own block | all blocks |
/// | broadcast | any number | the root's values | the root's values |
/// | gather | one for each rank | its own block | all blocks on the root |
/// | all-to-all | two for each rank | block i is for rank i | block size + i is from rank i |
///
/// Blocks that the last column does not name have no meaning afterwards.
enum class CollectiveKind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kGather, kAllToAll };

/// Ways to do a collective. n is the number of ranks, and B the number of bytes of the whole result.
enum class PlanAlgorithm {
  /// All-reduce in log2 n rounds, in each of which a rank exchanges all values with one partner. For short
  /// messages. With n not a power of two, the ranks beyond it hand their values to a neighbour first.
  kRecursiveDoubling,
  /// All-reduce and reduce-scatter in rounds that halve the values, and then double them again (Thakur,
  /// Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005, with the nearest partner first).
  /// A rank sends 2 (p - 1) / p B for the largest power of two p <= n, and up to B more if p < n.
  kHalving,
  /// Every rank sends each other one its part in a single round. Few rounds, but n - 1 messages in each. For
  /// ranks on one machine.
  kDirect,
  /// n - 1 rounds, or 2 (n - 1), with one neighbour on either side. The order of a sum differs from block to
  /// block, so it depends on the size of the message.
  kRing,
  /// All-gather and all-to-all in ceil(log2 n) rounds for any n (Bruck, Ho, Kipnis, Upfal and Weathersby,
  /// IEEE Trans. Parallel Distrib. Syst. 8, 1997). For all-to-all, all blocks must have the same size.
  kDissemination,
  /// Broadcast and gather along a binomial tree, in ceil(log2 n) rounds.
  kTree,
  /// Broadcast as a scatter along a binomial tree and an all-gather. A rank sends at most 2 (n - 1) / n B.
  kScatterGather,
  /// All-to-all in n - 1 rounds, each with one partner to send to and one to receive from.
  kPairwise,
};

/// Returns names such as "all_reduce" and "recursive_doubling", for messages and options.
std::string to_string(CollectiveKind kind);
std::string to_string(PlanAlgorithm algorithm);

/// Returns the algorithms that make_plan() has for a collective.
std::vector<PlanAlgorithm> algorithms_for(CollectiveKind kind);

/// Returns true if the order of sums is sum_order(), whatever the number of blocks. True without sums.
bool has_fixed_order(CollectiveKind kind, PlanAlgorithm algorithm);

/// Two parts of a sum, each of which starts at a rank and is already summed. Both are added at `into`.
struct SumOrderStep {
  int into = 0;
  int from = 0;
};

/// Returns the order in which `size` ranks are added up: a balanced binary tree of neighbours. For a power of
/// two, ranks 0 and 1, 2 and 3, ... are added first, then (0, 1) and (2, 3), and so on. Otherwise, as many
/// neighbours from rank 0 on are added before as leave a power of two. The sum is at rank 0 in the end.
std::vector<SumOrderStep> sum_order(int size);

/// Returns `rank`'s plan for a collective of `size` ranks. `root` is the rank whose values a broadcast sends
/// and a gather collects. Throws InvalidArgument if there is no such algorithm for the collective, or a rank
/// is not below `size`.
ExchangePlan make_plan(CollectiveKind kind, PlanAlgorithm algorithm, int rank, int size, int root = 0);

}  // namespace lockstep
