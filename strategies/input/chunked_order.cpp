#include "lockstep/strategies/input/chunked_order.h"

#include <algorithm>
#include <numeric>

#include "lockstep/strategies/input/internal/split_mix.h"

namespace lockstep {
namespace {

/// Returns the bound of a lane's part of `count` examples that the lanes divide among themselves.
size_t bound_of(size_t count, size_t lane, size_t lanes) {
  return count * lane / lanes;
}

/// Returns the lane whose part of `count` examples has number `i`.
size_t lane_of(size_t count, size_t i, size_t lanes) {
  return ((i + 1) * lanes - 1) / count;
}

}  // namespace

ChunkedOrder::ChunkedOrder(const std::vector<size_t>& chunk_sizes, const ChunkedOrderOptions& options)
    : options_(options) {
  size_t& lanes = options_.lanes;
  lanes = options_.seed ? std::clamp(lanes, size_t{1}, options_.batch_size) : 1;
  if (options_.seed)
    of_epoch_ = SplitMix64(SplitMix64(*options_.seed)() + static_cast<uint64_t>(options_.epoch))();
  for (const size_t size : chunk_sizes) {
    begins_.push_back(size_);
    size_ += size;
  }
  order_.resize(chunk_sizes.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  if (options_.seed) order_ = shuffled_indices(chunk_sizes.size(), SplitMix64(of_epoch_));
  for (const size_t chunk : order_) firsts_.push_back(firsts_.back() + chunk_sizes[chunk]);

  const size_t full = size_ / options_.batch_size;
  const size_t rest = size_ % options_.batch_size;
  for (size_t lane = 0; lane <= lanes; ++lane)
    lane_begins_.push_back(full * bound_of(options_.batch_size, lane, lanes) + bound_of(rest, lane, lanes));
  if (!options_.seed || options_.window == 0) return;
  for (size_t lane = 0; lane < lanes; ++lane) {
    windows_.push_back(std::make_unique<const EpochOrder>(
        lane_begins_[lane + 1] - lane_begins_[lane],
        EpochOrderOptions{.seed = SplitMix64(of_epoch_ + lane)(), .window = options_.window}));
  }
}

std::vector<ChunkedOrder::Piece> ChunkedOrder::pieces_of(const Range& places) const {
  std::vector<Piece> pieces;
  const size_t lanes = options_.lanes;
  for (size_t place = places.begin; place < places.end;) {
    const size_t step = place / options_.batch_size;
    const size_t begin = step * options_.batch_size;
    const size_t count = std::min(options_.batch_size, size_ - begin);
    const size_t lane = lane_of(count, place - begin, lanes);
    const size_t bound = bound_of(count, lane, lanes);
    const size_t end = std::min(places.end - begin, bound_of(count, lane + 1, lanes));
    // A lane has given as many examples to each of the full batches before this one.
    const size_t before =
        step * (bound_of(options_.batch_size, lane + 1, lanes) - bound_of(options_.batch_size, lane, lanes));
    pieces.push_back(
        {.lane = lane, .begin = before + (place - begin - bound), .end = before + (end - bound)});
    place = begin + end;
  }
  return pieces;
}

size_t ChunkedOrder::chunk_at(size_t place) const {
  return static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), place) - firsts_.begin()) - 1;
}

ChunkedOrder::Permutation ChunkedOrder::permutation_of(size_t chunk) const {
  const size_t size = (chunk + 1 < begins_.size() ? begins_[chunk + 1] : size_) - begins_[chunk];
  const std::lock_guard<std::mutex> lock(mutex_);
  Held& held = held_[chunk];
  held.last_use = ++uses_;
  if (held.permutation) return held.permutation;
  // The order of the chunks is drawn with of_epoch_ itself.
  const auto shuffled = shuffled_indices(size, SplitMix64(SplitMix64(of_epoch_ + 1 + chunk)()));
  held.permutation = std::make_shared<const std::vector<uint32_t>>(shuffled.begin(), shuffled.end());
  Permutation permutation = held.permutation;
  // Chunks are asked about ahead, and batches that are made at the same time may be on both sides of a
  // chunk's end.
  if (held_.size() > 2 * options_.lanes + 2) {
    held_.erase(std::min_element(held_.begin(), held_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    }));
  }
  return permutation;
}

ChunkedOrder::Permutation ChunkedOrder::order_within(size_t chunk) const {
  return options_.seed && windows_.empty() ? permutation_of(chunk) : nullptr;
}

std::vector<size_t> ChunkedOrder::indices(const Range& places) const {
  std::vector<size_t> indices;
  indices.reserve(places.end - places.begin);
  for (const Piece& piece : pieces_of(places)) {
    const size_t lane_begin = lane_begins_[piece.lane];
    if (!windows_.empty()) {
      for (const size_t i : windows_[piece.lane]->indices({.begin = piece.begin, .end = piece.end}))
        indices.push_back(index_at(lane_begin + i));
      continue;
    }
    const size_t end = lane_begin + piece.end;
    for (size_t place = lane_begin + piece.begin; place < end;) {
      const size_t i = chunk_at(place);
      const size_t first = firsts_[i];
      const size_t begin = begins_[order_[i]];
      const size_t chunk_end = std::min(end, firsts_[i + 1]);
      if (options_.seed) {
        const Permutation permutation = permutation_of(order_[i]);
        for (; place < chunk_end; ++place) indices.push_back(begin + (*permutation)[place - first]);
      } else {
        for (; place < chunk_end; ++place) indices.push_back(begin + (place - first));
      }
    }
  }
  return indices;
}

size_t ChunkedOrder::index_at(size_t place) const {
  const size_t i = chunk_at(place);
  return begins_[order_[i]] + (place - firsts_[i]);
}

std::vector<size_t> ChunkedOrder::needed_chunks(const Range& places) const {
  std::vector<size_t> chunks, next;
  for (const Piece& piece : pieces_of(places)) {
    if (piece.end == piece.begin) continue;
    const size_t lane_begin = lane_begins_[piece.lane], lane_end = lane_begins_[piece.lane + 1];
    const size_t last_place = std::min(lane_begin + piece.end - 1 + options_.window, lane_end - 1);
    const size_t first = chunk_at(lane_begin + piece.begin), last = chunk_at(last_place);
    for (size_t i = first; i <= last; ++i)
      if (firsts_[i + 1] > firsts_[i]) chunks.push_back(order_[i]);
    if (firsts_[last + 1] < lane_end) next.push_back(order_[chunk_at(firsts_[last + 1])]);
  }
  chunks.insert(chunks.end(), next.begin(), next.end());
  return chunks;
}

}  // namespace lockstep
