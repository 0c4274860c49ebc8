#include "lockstep/datasets/text/internal/word_merger.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <stdexcept>

#include "lockstep/datasets/text/internal/scratch_pool.h"

namespace lockstep {
namespace {

/// Up to this many symbols, looking at all of them for each merge is faster than a heap.
constexpr size_t kShortWord = 48;

void merge_short(const MergeTable& table, std::vector<uint32_t>& symbols) {
  std::array<MergeTable::Found, kShortWord> merges;  // of each symbol with the next one
  size_t num_pairs = symbols.size() - 1;
  for (size_t i = 0; i < num_pairs; ++i) merges[i] = table.find(symbols[i], symbols[i + 1]);
  while (num_pairs > 0) {
    size_t best = 0;
    for (size_t i = 1; i < num_pairs; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == MergeTable::kNoRank) break;
    symbols[best] = merges[best].result;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<ptrdiff_t>(num_pairs) + 1,
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + num_pairs, merges.begin() + best);
    --num_pairs;
    if (best > 0) merges[best - 1] = table.find(symbols[best - 1], symbols[best]);
    if (best < num_pairs) merges[best] = table.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(num_pairs + 1);
}

constexpr uint32_t kNoSymbol = std::numeric_limits<uint32_t>::max();

uint64_t queued(uint32_t rank, uint32_t place) {
  return uint64_t{rank} << 32 | place;
}

}  // namespace

void WordMerger::merge(const MergeTable& table, std::vector<uint32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortWord) return merge_short(table, symbols);
  if (symbols.size() >= kNoSymbol)
    throw std::length_error("expected words of less than 4 GiB, but got " + std::to_string(symbols.size()));
  merge_long(table, symbols);
}

void WordMerger::trim() {
  release_if_large(list_);
  release_if_large(queue_);
}

void WordMerger::look_up(const MergeTable& table, uint32_t at) {
  Symbol& symbol = list_[at];
  symbol.merge =
      symbol.next == kNoSymbol ? MergeTable::Found() : table.find(symbol.id, list_[symbol.next].id);
  if (symbol.merge.rank != MergeTable::kNoRank) queue_.push_back(queued(symbol.merge.rank, at));
}

void WordMerger::merge_long(const MergeTable& table, std::vector<uint32_t>& symbols) {
  const auto count = static_cast<uint32_t>(symbols.size());
  list_.resize(count);
  queue_.clear();
  for (uint32_t i = 0; i < count; ++i)
    list_[i] = {.id = symbols[i], .previous = i - 1, .next = i + 1 < count ? i + 1 : kNoSymbol};
  for (uint32_t i = 0; i < count; ++i) look_up(table, i);
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>());

  const auto look_up_and_queue = [&](uint32_t at) {
    const size_t before = queue_.size();
    look_up(table, at);
    if (queue_.size() > before) std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  };
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(queue_.back() >> 32);
    const auto at = static_cast<uint32_t>(queue_.back());
    queue_.pop_back();
    Symbol& left = list_[at];
    if (left.merge.rank != rank) continue;  // its symbols have been merged with others since
    Symbol& right = list_[left.next];
    left.id = left.merge.result;
    left.next = right.next;
    right.merge = {};
    if (left.next != kNoSymbol) list_[left.next].previous = at;
    look_up_and_queue(at);
    if (at > 0) look_up_and_queue(left.previous);
  }

  symbols.clear();
  for (uint32_t i = 0; i != kNoSymbol; i = list_[i].next) symbols.push_back(list_[i].id);
}

}  // namespace lockstep
