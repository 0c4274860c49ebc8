#include "lockstep/strategies/input/epoch_order.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "lockstep/strategies/input/internal/split_mix.h"
#include "lockstep/strategies/input/permutation.h"

namespace lockstep {
namespace {

/// A permutation of 0 ... size-1 that holds no table. The network permutes the numbers below a power of 4
/// that is less than 4 times the size; numbers that are too large pass it again.
class FeistelPermutation {
 public:
  FeistelPermutation(size_t size, uint64_t seed) : size_(size) {
    half_bits_ = (static_cast<int>(std::bit_width(size - 1)) + 1) / 2;
    SplitMix64 random(seed);
    for (uint64_t& key : keys_) key = random();
  }

  size_t operator()(size_t place) const {
    uint64_t value = place;
    do value = pass(value);
    while (value >= size_);
    return value;
  }

 private:
  uint64_t pass(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (const uint64_t key : keys_)
      left = std::exchange(right, left ^ (SplitMix64(key ^ right)() >> 32 & mask));
    return left << half_bits_ | right;
  }

  size_t size_;
  int half_bits_ = 0;
  std::array<uint64_t, 8> keys_{};
};

/// Returns the size of the first block of an order with a window.
size_t drawn_first_block(const EpochOrderOptions& options) {
  SplitMix64 random(SplitMix64(options.seed)() + static_cast<uint64_t>(options.epoch));
  return 1 + static_cast<size_t>(random.below(options.window + 1));
}

uint64_t seed_of_block(const EpochOrderOptions& options, size_t number) {
  // Each draw separates the streams of neighbours.
  const uint64_t of_epoch = SplitMix64(SplitMix64(options.seed)() + static_cast<uint64_t>(options.epoch))();
  return SplitMix64(of_epoch + number)();
}

}  // namespace

EpochOrder::EpochOrder(size_t size, const EpochOrderOptions& options) : size_(size), options_(options) {
  if (options_.window == 0 || options_.window >= size_) {
    options_.window = 0;
    first_block_ = size_;
  } else {
    first_block_ = std::min(size_, drawn_first_block(options_));
  }
}

EpochOrder::Block EpochOrder::block_at(size_t place) const {
  if (place < first_block_) return {.number = 0, .begin = 0, .size = first_block_};
  const size_t full = options_.window + 1;
  const size_t number = 1 + (place - first_block_) / full;
  const size_t begin = first_block_ + (number - 1) * full;
  return {.number = number, .begin = begin, .size = std::min(full, size_ - begin)};
}

EpochOrder::Permutation EpochOrder::permutation_of(const Block& block) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Held& held : held_)
    if (held.permutation && held.number == block.number) return held.permutation;
  std::swap(held_[0], held_[1]);
  held_[0] = {};  // before there is a third one
  held_[0] = {block.number,
              std::make_shared<const std::vector<size_t>>(
                  options_.window == 0
                      ? epoch_permutation(size_, options_.seed, options_.epoch)
                      : shuffled_indices(block.size, SplitMix64(seed_of_block(options_, block.number))))};
  return held_[0].permutation;
}

std::vector<size_t> EpochOrder::indices(const Range& places) const {
  std::vector<size_t> indices;
  indices.reserve(places.end - places.begin);
  for (size_t place = places.begin; place < places.end;) {
    const Block block = block_at(place);
    const size_t end = std::min(places.end, block.begin + block.size);
    const auto append = [&](const auto& at) {
      for (; place < end; ++place) indices.push_back(block.begin + at(place - block.begin));
    };
    if (block.size > options_.max_held) {
      append(FeistelPermutation(block.size, seed_of_block(options_, block.number)));
    } else {
      const auto permutation = permutation_of(block);
      append([&](size_t i) { return (*permutation)[i]; });
    }
  }
  return indices;
}

StreamBlocks::StreamBlocks(const EpochOrderOptions& options) : options_(options) {
  options_.window = std::min(options_.window, static_cast<size_t>(std::numeric_limits<int64_t>::max()) - 1);
}

int64_t StreamBlocks::next_size() const {
  return static_cast<int64_t>(number_ == 0 ? drawn_first_block(options_) : options_.window + 1);
}

std::vector<int64_t> StreamBlocks::next_order(int64_t size) {
  const auto order =
      shuffled_indices(static_cast<size_t>(size), SplitMix64(seed_of_block(options_, number_++)));
  return {order.begin(), order.end()};
}

}  // namespace lockstep
