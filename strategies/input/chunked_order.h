#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/strategies/input/epoch_order.h"
#include "lockstep/strategies/input/example_order.h"

namespace lockstep {

struct ChunkedOrderOptions {
  std::optional<uint64_t> seed{};  ///< None: the order of the examples' indices, and one lane.
  int64_t epoch = 0;
  /// As in EpochOrderOptions, within a lane. 0: examples are shuffled within their chunk.
  size_t window = 0;
  /// The number of chunks that a batch's examples are from, at least 1.
  size_t lanes = 1;
  /// Examples of a global batch, at least 1.
  size_t batch_size = 1;
};

/// The order of the examples in one epoch if they are stored in chunks, such as the row groups of a Parquet
/// file, of which each is read as a whole. It depends only on the arguments, not on the number of replicas
/// and workers.
///
/// The chunks are shuffled, put one after another, and cut into lanes with equally many examples. Each global
/// batch takes an equal part from each lane, one lane after another, beginning where the batch before
/// ended. A worker, which takes a contiguous part of each batch, thus reads only the chunks of its own lanes,
/// and each chunk once, but for chunks that lie across a lane's end. Within a lane, examples are shuffled
/// within their chunks, or across chunks within a window. Holds 4 bytes for each example of up to 2 `lanes`
/// + 2 chunks. Thread-safe.
///
/// Example:
///
///     const ChunkedOrder order({1000, 1000, 500}, {.seed = 1, .epoch = 3, .lanes = 2, .batch_size = 64});
///     const std::vector<size_t> of_step = order.indices({.begin = 64 * step, .end = 64 * (step + 1)});
class ChunkedOrder final : public ExampleOrder {
 public:
  /// `chunk_sizes` has the number of examples of each chunk, in the order of their indices.
  ChunkedOrder(const std::vector<size_t>& chunk_sizes, const ChunkedOrderOptions& options);

  std::vector<size_t> indices(const Range& places) const override;

  /// Returns the chunks that examples at these places, all of one batch, are from, and then those that the
  /// places' lanes come to next. A lane at the end of its last chunk has no next one.
  std::vector<size_t> needed_chunks(const Range& places) const;

  using Permutation = std::shared_ptr<const std::vector<uint32_t>>;
  /// Returns the numbers of a chunk's examples within the chunk in the order in which they are used. Null if
  /// that is their own order, or if a window mixes them with those of other chunks.
  Permutation order_within(size_t chunk) const;

 private:
  /// Places of a lane that follow one another, and where they are in the sequence of all lanes.
  struct Piece {
    size_t lane = 0;
    size_t begin = 0;  // places in the lane
    size_t end = 0;
  };

  std::vector<Piece> pieces_of(const Range& places) const;
  size_t chunk_at(size_t place) const;
  size_t index_at(size_t place) const;
  Permutation permutation_of(size_t chunk) const;

  size_t size_ = 0;
  ChunkedOrderOptions options_;
  uint64_t of_epoch_ = 0;            // seed
  std::vector<size_t> order_;        // of chunks
  std::vector<size_t> firsts_{0};    // the first place of each chunk in that order, and the end
  std::vector<size_t> begins_;       // the first index of each chunk
  std::vector<size_t> lane_begins_;  // the first place of each lane, and the end
  std::vector<std::unique_ptr<const EpochOrder>> windows_;  // of each lane; none without a window
  mutable std::mutex mutex_;
  struct Held {
    Permutation permutation;
    uint64_t last_use = 0;
  };
  mutable std::map<size_t, Held> held_;  // by chunk; guarded by mutex_, like the next
  mutable uint64_t uses_ = 0;
};

}  // namespace lockstep
