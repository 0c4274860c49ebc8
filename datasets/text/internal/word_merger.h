#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/datasets/text/internal/merge_table.h"

namespace lockstep {

/// Merges the symbols of a word: always the pair whose merge comes first in the list, and of several such
/// pairs the leftmost, until no pair has a merge (Sennrich et al., "Neural Machine Translation of Rare Words
/// with Subword Units", 2016). Used by one thread at a time.
class WordMerger {
 public:
  /// Merges `symbols` in place. Takes O(n log n) steps. Throws std::length_error from 2^32 - 1 symbols on.
  void merge(const MergeTable& table, std::vector<uint32_t>& symbols);
  /// Gives back the memory of a long word.
  void trim();

 private:
  struct Symbol {
    uint32_t id = 0;
    uint32_t previous = 0;
    uint32_t next = 0;
    MergeTable::Found merge;  ///< with the next one
  };

  void merge_long(const MergeTable& table, std::vector<uint32_t>& symbols);
  void look_up(const MergeTable& table, uint32_t at);

  std::vector<Symbol> list_;
  std::vector<uint64_t> queue_;  // rank and place of merges; the first is at the front of the heap
};

}  // namespace lockstep
