#include "lockstep/datasets/text/internal/word_cache.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

std::span<const uint32_t> WordCache::find(std::string_view word, uint64_t hash) const {
  const Entry& entry = entries_[hash & mask_];
  // Words are not empty, so that an entry without a word differs from all of them.
  if (entry.num_bytes != word.size() || std::memcmp(entry.bytes, word.data(), word.size()) != 0) return {};
  return {entry.ids, entry.num_ids};
}

void WordCache::put(std::string_view word, uint64_t hash, std::span<const uint32_t> ids) {
  if (word.size() > kMaxBytes || ids.size() > kMaxIds || ids.empty()) return;
  Entry& entry = entries_[hash & mask_];
  entry.num_bytes = static_cast<uint8_t>(word.size());
  entry.num_ids = static_cast<uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), entry.bytes);
  std::copy(ids.begin(), ids.end(), entry.ids);
}

}  // namespace lockstep
