#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/strategies/input/example_order.h"

namespace lockstep {

struct EpochOrderOptions {
  uint64_t seed = 0;
  int64_t epoch = 0;
  /// The most places that the order moves an example. 0: any number.
  size_t window = 0;
  /// The most indices of a block to hold in memory. Up to two blocks are held.
  size_t max_held = size_t{1} << 27;
};

/// The order of the examples in one epoch, returned piece by piece, so that memory need not hold all of it.
/// It depends only on the arguments: not on the standard library, the process or the number of replicas.
///
/// Without a window, it is the permutation of epoch_permutation(). With one, the examples are cut into blocks
/// of window + 1, each with a permutation of its own. The end of the first block is drawn for each epoch, so
/// that over the epochs, all examples that are near each other are mixed. A block of more than `max_held`
/// examples is not held: its permutation is a Feistel network (Luby and Rackoff, How to Construct
/// Pseudorandom Permutations from Pseudorandom Functions, 1988) and takes about 100 ns for each index.
/// Thread-safe.
///
/// Example:
///
///     const EpochOrder order(num_examples, {.seed = 1, .epoch = 3, .window = 10'000});
///     const std::vector<size_t> of_step = order.indices({.begin = 64 * step, .end = 64 * (step + 1)});
class EpochOrder final : public ExampleOrder {
 public:
  EpochOrder(size_t size, const EpochOrderOptions& options);

  std::vector<size_t> indices(const Range& places) const override;

 private:
  struct Block {
    size_t number = 0;
    size_t begin = 0;
    size_t size = 0;
  };
  using Permutation = std::shared_ptr<const std::vector<size_t>>;
  struct Held {
    size_t number = 0;
    Permutation permutation;
  };

  Block block_at(size_t place) const;
  Permutation permutation_of(const Block& block) const;

  size_t size_;
  EpochOrderOptions options_;
  size_t first_block_;  // its size
  mutable std::mutex mutex_;
  // Batches that are made at the same time may be on both sides of a block's end.
  mutable std::array<Held, 2> held_;  // guarded by mutex_
};

/// The blocks of an EpochOrder with a window, for examples whose number is not known before their end.
///
/// Example:
///
///     StreamBlocks blocks({.seed = 1, .epoch = 3, .window = 10'000});
///     const int64_t size = std::min(blocks.next_size(), examples_left);
///     const std::vector<int64_t> order = blocks.next_order(size);
class StreamBlocks {
 public:
  /// `options.window` must be at least 1; `max_held` is not used.
  explicit StreamBlocks(const EpochOrderOptions& options);

  /// Returns the size of the next block, unless the stream ends before.
  int64_t next_size() const;
  /// Returns the order of the next block, which has `size` examples, and moves to the one after it.
  std::vector<int64_t> next_order(int64_t size);

 private:
  EpochOrderOptions options_;
  size_t number_ = 0;
};

}  // namespace lockstep
