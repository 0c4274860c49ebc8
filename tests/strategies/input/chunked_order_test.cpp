#include "lockstep/strategies/input/chunked_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/strategies/input/internal/split_mix.h"

namespace lockstep {
namespace {

using Chunks = std::vector<size_t>;

size_t sum_of(const Chunks& chunks) {
  return std::accumulate(chunks.begin(), chunks.end(), size_t{0});
}

Chunks whole_order(const Chunks& chunks, const ChunkedOrderOptions& options) {
  return ChunkedOrder(chunks, options).indices({.begin = 0, .end = sum_of(chunks)});
}

size_t chunk_of(const Chunks& chunks, size_t index) {
  size_t chunk = 0;
  for (; index >= chunks[chunk]; ++chunk) index -= chunks[chunk];
  return chunk;
}

/// Builds the order of an epoch as lists: of all chunks' examples, of lanes, and of batches.
Chunks listed_order(const Chunks& chunks, const ChunkedOrderOptions& options) {
  const uint64_t of_epoch = SplitMix64(SplitMix64(*options.seed)() + static_cast<uint64_t>(options.epoch))();
  Chunks sequence;
  for (const size_t chunk : shuffled_indices(chunks.size(), SplitMix64(of_epoch))) {
    const size_t first =
        std::accumulate(chunks.begin(), chunks.begin() + static_cast<int64_t>(chunk), size_t{0});
    auto inside = shuffled_indices(chunks[chunk], SplitMix64(SplitMix64(of_epoch + 1 + chunk)()));
    if (options.window > 0) std::iota(inside.begin(), inside.end(), size_t{0});
    for (const size_t i : inside) sequence.push_back(first + i);
  }
  // The number of examples that each lane gives to each batch.
  const size_t lanes = std::min(options.lanes, options.batch_size);
  std::vector<Chunks> parts;
  for (size_t begin = 0; begin < sequence.size(); begin += options.batch_size) {
    const size_t count = std::min(options.batch_size, sequence.size() - begin);
    parts.emplace_back();
    for (size_t lane = 0; lane < lanes; ++lane)
      parts.back().push_back(count * (lane + 1) / lanes - count * lane / lanes);
  }
  std::vector<Chunks> of_lanes(lanes);
  auto next = sequence.begin();
  for (size_t lane = 0; lane < lanes; ++lane) {
    size_t size = 0;
    for (const Chunks& part : parts) size += part[lane];
    const Chunks in_order(next, next + static_cast<int64_t>(size));
    next += static_cast<int64_t>(size);
    of_lanes[lane] = in_order;
    if (options.window == 0) continue;
    const EpochOrder window(size, {.seed = SplitMix64(of_epoch + lane)(), .window = options.window});
    const auto places = window.indices({.begin = 0, .end = size});
    for (size_t i = 0; i < size; ++i) of_lanes[lane][i] = in_order[places[i]];
  }
  Chunks order;
  std::vector<size_t> taken(lanes, 0);
  for (const Chunks& part : parts) {
    for (size_t lane = 0; lane < lanes; ++lane)
      for (size_t i = 0; i < part[lane]; ++i) order.push_back(of_lanes[lane][taken[lane]++]);
  }
  return order;
}

const std::vector<Chunks>& kinds_of_chunks() {
  static const std::vector<Chunks> kinds{{},           {0},          {1},           {5},
                                         {0, 3, 0, 4}, {7, 7, 7, 7}, {1, 2, 30, 4}, Chunks(40, 11)};
  return kinds;
}

TEST(ChunkedOrder, IsThatOfListsPutTogether) {
  for (const Chunks& chunks : kinds_of_chunks()) {
    for (const size_t lanes : {1U, 2U, 3U, 8U}) {
      for (const size_t batch_size : {1U, 2U, 7U, 16U, 1000U}) {
        for (const size_t window : {0U, 4U, 50U}) {
          const ChunkedOrderOptions options{
              .seed = 5, .epoch = 2, .window = window, .lanes = lanes, .batch_size = batch_size};
          EXPECT_EQ(whole_order(chunks, options), listed_order(chunks, options))
              << chunks.size() << " chunks, " << lanes << " lanes, batches of " << batch_size << ", window "
              << window;
        }
      }
    }
  }
}

TEST(ChunkedOrder, HoldsEveryIndexOnce) {
  for (const Chunks& chunks : kinds_of_chunks()) {
    for (const size_t window : {0U, 9U}) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        auto order = whole_order(chunks, {.seed = seed, .window = window, .lanes = 3, .batch_size = 8});
        std::sort(order.begin(), order.end());
        Chunks all(sum_of(chunks));
        std::iota(all.begin(), all.end(), size_t{0});
        EXPECT_EQ(order, all);
      }
    }
  }
}

TEST(ChunkedOrder, WithoutASeedIsTheOrderOfTheIndices) {
  for (const Chunks& chunks : kinds_of_chunks()) {
    Chunks all(sum_of(chunks));
    std::iota(all.begin(), all.end(), size_t{0});
    EXPECT_EQ(whole_order(chunks, {.window = 3, .lanes = 4, .batch_size = 6}), all);
  }
}

TEST(ChunkedOrder, IsTheSameHoweverItIsAskedFor) {
  const Chunks chunks{13, 1, 40, 7, 22};
  const ChunkedOrderOptions options{.seed = 3, .epoch = 1, .lanes = 4, .batch_size = 10};
  const auto whole = whole_order(chunks, options);
  for (size_t piece = 1; piece < 12; ++piece) {
    const ChunkedOrder order(chunks, options);
    Chunks pieces;
    for (size_t begin = 0; begin < whole.size(); begin += piece) {
      const auto part = order.indices({.begin = begin, .end = std::min(begin + piece, whole.size())});
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    EXPECT_EQ(pieces, whole);
  }
}

// Each of `workers` takes a contiguous part of each batch, as strategies cut them.
TEST(ChunkedOrder, LetsEachWorkerReadItsOwnChunks) {
  const Chunks chunks(64, 100);
  for (const size_t workers : {1U, 2U, 4U, 8U}) {
    const ChunkedOrder order(chunks, {.seed = 9, .lanes = 8, .batch_size = 80});
    size_t num_read = 0;
    for (size_t worker = 0; worker < workers; ++worker) {
      std::map<size_t, std::pair<size_t, size_t>> steps;  // the first and the last step of each chunk
      size_t most_open = 0;
      for (size_t step = 0; step < 80; ++step) {
        std::set<size_t> open;
        for (const size_t index : order.indices({.begin = 80 * step + 80 * worker / workers,
                                  .end = 80 * step + 80 * (worker + 1) / workers})) {
          const size_t chunk = chunk_of(chunks, index);
          open.insert(chunk);
          steps.try_emplace(chunk, step, step).first->second.second = step;
        }
        most_open = std::max(most_open, open.size());
      }
      num_read += steps.size();
      // 8 / workers lanes, each of which may come to its next chunk within a batch.
      EXPECT_LE(most_open, 2 * 8 / workers);
      for (const auto& [chunk, range] : steps) EXPECT_LE(range.second - range.first, 10U) << chunk;
    }
    // A lane has 8 chunks or parts of them.
    EXPECT_LE(num_read, 64U + 8U);
  }
}

TEST(ChunkedOrder, DiffersBetweenEpochsAndSeeds) {
  const Chunks chunks(10, 20);
  std::set<Chunks> orders;
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (int64_t epoch = 0; epoch < 4; ++epoch)
      orders.insert(whole_order(chunks, {.seed = seed, .epoch = epoch, .lanes = 2, .batch_size = 10}));
  EXPECT_EQ(orders.size(), 16U);
}

// Computed by the same algorithm in Python, whose integers have no fixed width. A run that resumes with
// another build needs the same order.
TEST(ChunkedOrder, IsTheSameOnEveryMachine) {
  EXPECT_EQ(whole_order({3, 4, 2, 5}, {.seed = 1, .epoch = 2, .lanes = 2, .batch_size = 4}),
            (Chunks{6, 3, 2, 0, 5, 4, 9, 11, 8, 7, 12, 10, 1, 13}));
}

TEST(ChunkedOrder, SaysWhichChunksComeNext) {
  const Chunks chunks(6, 10);
  const ChunkedOrder order(chunks, {.seed = 4, .lanes = 1, .batch_size = 5});
  const auto all = order.indices({.begin = 0, .end = 60});
  for (size_t begin = 0; begin < 60; begin += 5) {
    Chunks expected{chunk_of(chunks, all[begin])};
    if (begin < 50) expected.push_back(chunk_of(chunks, all[begin - begin % 10 + 10]));
    EXPECT_EQ(order.needed_chunks({.begin = begin, .end = begin + 5}), expected);
  }
}

TEST(ChunkedOrder, GivesAllThreadsTheSameOrder) {
  const Chunks chunks(50, 20);
  const ChunkedOrderOptions options{.seed = 2, .lanes = 4, .batch_size = 16};
  const auto whole = whole_order(chunks, options);
  const ChunkedOrder order(chunks, options);
  std::vector<Chunks> parts(100);
  std::atomic<size_t> next{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (size_t part = next++; part < parts.size(); part = next++)
          parts[part] = order.indices({.begin = 10 * part, .end = 10 * part + 10});
      });
    }
  }
  Chunks joined;
  for (const Chunks& part : parts) joined.insert(joined.end(), part.begin(), part.end());
  EXPECT_EQ(joined, whole);
}

}  // namespace
}  // namespace lockstep
