#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Consecutive blocks of the memory that a plan works on.
struct BlockRange {
  int first = 0;
  int count = 1;

  bool operator==(const BlockRange&) const = default;
};

/// Blocks that one message carries, in this order.
using BlockRanges = std::vector<BlockRange>;

struct PlanSend {
  int peer = 0;
  BlockRanges blocks;
};

struct PlanReceive {
  int peer = 0;
  BlockRanges blocks;
  /// True: the values are added to the blocks, or combined by another reduction. False: they replace them.
  bool is_added = false;
};

/// Copies or adds one block of a rank to another one, without a message.
struct PlanStep {
  int into = 0;
  int from = 0;
  bool is_added = false;
};

/// Messages that a rank exchanges at the same time, and what it does once all have been sent and received. A
/// received message may have the same blocks as a sent one. Then the values are sent as they were before.
struct PlanRound {
  std::vector<PlanSend> sends;
  std::vector<PlanReceive> receives;
  std::vector<PlanStep> steps;  ///< in this order
};

/// One rank's part of a collective: which blocks it sends to whom, in which order, and which values it adds.
///
/// The memory is divided into blocks. A plan numbers them and knows nothing of their sizes, so one plan
/// serves messages of all sizes. The collective defines the meaning of the first `num_blocks` blocks; see the
/// functions that make plans. `num_scratch` more blocks follow, of which number `num_blocks + i` must be as
/// large as block `scratch_like[i]`.
///
/// Messages between two ranks are matched by their order. The plans of all ranks fit together if all are made
/// by the same function with the same arguments, apart from the rank.
struct ExchangePlan {
  int rank = 0;
  int size = 1;  ///< number of ranks
  int num_blocks = 1;
  std::vector<int> scratch_like{};
  std::vector<PlanRound> rounds{};

  int num_scratch() const { return static_cast<int>(scratch_like.size()); }
};

/// Returns the number of blocks in the ranges.
int count_blocks(const BlockRanges& ranges);

/// Appends a block, to the last range if it follows it.
void append_block(BlockRanges& ranges, int block);

/// Returns `count` blocks from `first` on, where block 0 follows block `size` - 1. Shifts all by `offset`.
BlockRanges cyclic_blocks(int first, int count, int size, int offset = 0);

/// Returns the rounds as lines of text, for error messages and tests.
std::string plan_text(const ExchangePlan& plan);

}  // namespace lockstep
