#include "lockstep/datasets/text/internal/merge_table.h"

#include <bit>

namespace lockstep {

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : entries_(std::bit_ceil(2 * merges.size() + 1)), mask_(entries_.size() - 1) {
  uint32_t rank = 0;
  for (const Merge& merge : merges) {
    const uint64_t key = key_of(merge.left, merge.right);
    size_t slot = slot_of(key);
    while (entries_[slot].key != kFree && entries_[slot].key != key) slot = (slot + 1) & mask_;
    entries_[slot] = {.key = key, .found = {.rank = rank++, .result = merge.result}};
  }
}

}  // namespace lockstep
