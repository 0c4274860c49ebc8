#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Returns a uniformly drawn permutation of 0 ... size-1 that depends only on the arguments: not on the
/// standard library, the process's random state or the number of replicas. Fisher-Yates shuffle on
/// SplitMix64, with Lemire's unbiased bounded draws (Fast Random Integer Generation in an Interval, 2019).
std::vector<size_t> epoch_permutation(size_t size, uint64_t seed, int64_t epoch);

}  // namespace lockstep
