#include "lockstep/strategies/input/permutation.h"

#include "lockstep/strategies/input/internal/split_mix.h"

namespace lockstep {

std::vector<size_t> epoch_permutation(size_t size, uint64_t seed, int64_t epoch) {
  // One draw separates the streams of neighbouring seeds before the epoch enters.
  return shuffled_indices(size, SplitMix64(SplitMix64(seed)() + static_cast<uint64_t>(epoch)));
}

}  // namespace lockstep
