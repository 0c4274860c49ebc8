#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

/// Returns the first block of each stage, for as many stages of at least one block each. The largest cost of
/// a stage, the sum over its blocks, is as small as possible. Throws InvalidArgument if there are fewer
/// blocks than stages, and for a cost that is negative or not finite.
std::vector<size_t> cut_into_stages(const std::vector<double>& costs, size_t stages);

/// Checks stages that were cut by hand; `cuts` has the first block of each but the first. Returns as
/// cut_into_stages(). Throws InvalidArgument unless they are as many, and in order.
std::vector<size_t> stages_cut_at(const std::vector<size_t>& cuts, size_t blocks, size_t stages);

}  // namespace lockstep
