#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/input/epoch_order.h"

namespace lockstep::detail {

/// Shuffles a stream of unknown length in a window: blocks of window + 1 examples, of which the first one
/// ends at a random place, are each put into a random order. The order depends on the seed, the epoch, the
/// window and the stream alone, not on how many examples `draw` gives at a time. Holds up to two blocks, and
/// for each of them the examples of one `draw`.
///
/// Example:
///
///     ShuffledStream<torch::Tensor> shuffled(draw, {.seed = 1, .epoch = epoch, .window = 10'000}, 64);
///     while (auto batch = shuffled()) train(*batch);
template <Selectable Batch>
class ShuffledStream {
 public:
  using Draw = std::function<std::optional<Batch>()>;

  ShuffledStream(Draw draw, const EpochOrderOptions& options, int64_t batch_size)
      : draw_(std::move(draw)), blocks_(options), batch_size_(batch_size) {}

  /// Returns the next `batch_size` examples: fewer at the end, and nothing after it.
  std::optional<Batch> operator()() {
    std::vector<Batch> parts;
    for (int64_t count = 0; count < batch_size_;) {
      if (place_ == size_ && !next_block()) break;
      const int64_t taken = std::min(batch_size_ - count, size_ - place_);
      parts.push_back(BatchTraits<Batch>::slice(*block_, place_, place_ + taken));
      place_ += taken;
      count += taken;
    }
    if (parts.empty()) return std::nullopt;
    return parts.size() == 1 ? std::move(parts.front()) : BatchTraits<Batch>::cat(parts);
  }

 private:
  /// Returns false at the end.
  bool next_block() {
    block_.reset();  // before there is a second one
    const int64_t wanted = blocks_.next_size();
    std::vector<Batch> drawn;
    int64_t count = 0;
    if (left_) {
      count = BatchTraits<Batch>::size(*left_);
      drawn.push_back(std::move(*left_));
      left_.reset();
    }
    while (count < wanted && !has_ended_) {
      std::optional<Batch> batch = draw_();
      has_ended_ = !batch || BatchTraits<Batch>::size(*batch) == 0;
      if (has_ended_) break;
      count += BatchTraits<Batch>::size(*batch);
      drawn.push_back(std::move(*batch));
    }
    place_ = 0;
    size_ = std::min(wanted, count);
    if (size_ == 0) return false;
    const Batch all = BatchTraits<Batch>::cat(drawn);
    drawn.clear();
    // A copy, as a view would keep the whole block.
    if (count > size_) left_ = BatchTraits<Batch>::select(all, torch::arange(size_, count, torch::kLong));
    const std::vector<int64_t> order = blocks_.next_order(size_);
    block_ = BatchTraits<Batch>::select(all, torch::tensor(order, torch::kLong));
    return true;
  }

  Draw draw_;
  StreamBlocks blocks_;
  int64_t batch_size_;
  std::optional<Batch> left_;   // drawn, of the next block
  std::optional<Batch> block_;  // in its order
  int64_t place_ = 0;           // the next example in the block
  int64_t size_ = 0;            // of the block
  bool has_ended_ = false;
};

}  // namespace lockstep::detail
