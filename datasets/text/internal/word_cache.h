#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// Remembers the ids of short words, as most words of a text occur often. Its memory is bounded: a word
/// replaces the one that had its place. Used by one thread at a time.
class WordCache {
 public:
  /// `num_words` is a power of two.
  explicit WordCache(size_t num_words) : entries_(num_words), mask_(num_words - 1) {}

  /// Returns the ids of a word, or none if it is not there. Valid until the next call of put().
  std::span<const uint32_t> find(std::string_view word, uint64_t hash) const;
  /// Remembers a word unless it or its ids are too long.
  void put(std::string_view word, uint64_t hash, std::span<const uint32_t> ids);

 private:
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;
  /// A line of a processor's cache.
  struct alignas(64) Entry {
    uint8_t num_bytes = 0;
    uint8_t num_ids = 0;
    char bytes[kMaxBytes] = {};
    uint32_t ids[kMaxIds] = {};
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;
  size_t mask_;
};

}  // namespace lockstep
