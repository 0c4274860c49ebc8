#include "lockstep/datasets/text/internal/word_merger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace lockstep {
namespace {

using Symbols = std::vector<uint32_t>;

/// The definition: for each merge in the order of the list, the leftmost pair first, then from the beginning
/// again.
Symbols merged_by_definition(const std::vector<Merge>& merges, Symbols symbols) {
  std::map<std::pair<uint32_t, uint32_t>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
  while (true) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        place = i;
      }
    }
    if (best == merges.size()) return symbols;
    symbols[place] = merges[best].result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

/// Merges of an alphabet of `size` symbols and of the tokens that they make.
std::vector<Merge> random_merges(std::mt19937& random, uint32_t size) {
  std::vector<Merge> merges;
  const auto any_below = [&](uint32_t end) {
    return std::uniform_int_distribution<uint32_t>(0, end - 1)(random);
  };
  merges.reserve(60);
  for (uint32_t token = size; token < size + 60; ++token)
    merges.push_back({.left = any_below(token), .right = any_below(token), .result = token});
  std::shuffle(merges.begin(), merges.end(), random);
  return merges;
}

TEST(WordMergerTest, MergesShortAndLongWordsByTheDefinition) {
  std::mt19937 random(1);
  WordMerger merger;
  for (int round = 0; round < 300; ++round) {
    const uint32_t size = 1 + random() % 4;
    const auto merges = random_merges(random, size);
    const MergeTable table(merges);
    for (const size_t length : {0, 1, 2, 3, 10, 47, 48, 49, 50, 200}) {
      Symbols symbols(length);
      for (uint32_t& symbol : symbols) symbol = random() % size;
      const Symbols expected = merged_by_definition(merges, symbols);
      merger.merge(table, symbols);
      EXPECT_EQ(symbols, expected) << "round " << round << ", " << length << " symbols";
    }
  }
}

TEST(WordMergerTest, TakesAMillionSymbolsInNoTime) {
  // 20 merges double a token each. Quadratic time would be hours.
  std::vector<Merge> merges;
  merges.reserve(20);
  for (uint32_t i = 0; i < 20; ++i) merges.push_back({.left = i, .right = i, .result = i + 1});
  Symbols symbols(size_t{1} << 20, 0);
  WordMerger().merge(MergeTable(merges), symbols);
  EXPECT_EQ(symbols, Symbols{20});
}

}  // namespace
}  // namespace lockstep
