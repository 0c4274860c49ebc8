#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {

/// Two tokens that become one.
struct Merge {
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t result = 0;
};

/// Finds the merge of two tokens, and how early it comes. Thread-safe.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
  struct Found {
    uint32_t rank = kNoRank;  ///< the merge's place in the list; kNoRank if there is none
    uint32_t result = 0;
  };

  MergeTable() = default;
  /// Of merges of the same tokens, the last one counts. There are fewer than 2^30.
  explicit MergeTable(const std::vector<Merge>& merges);

  Found find(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.key == key) return entry.found;
      if (entry.key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();
  struct Entry {
    uint64_t key = kFree;
    Found found;
  };

  static uint64_t key_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  size_t slot_of(uint64_t key) const {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio
    return (key * kOdd >> 32) & mask_;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(1);
  size_t mask_ = 0;
};

}  // namespace lockstep
