#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {

/// How many nodes a list may expand to; more is taken for a mistake.
inline constexpr int kMaxSlurmNodes = 65536;

/// The nodes of Slurm's compressed list, in its order: "n[01-03,7],gpu-a[1-2]x[3-4],login" gives n01, n02,
/// n03, n7, gpu-a1x3, gpu-a1x4, gpu-a2x3, gpu-a2x4, login. Numbers are padded to the width of the range's
/// first. Throws InvalidArgument naming `value` and what is wrong, for more than kMaxSlurmNodes before any
/// is made.
std::vector<std::string> expand_slurm_nodes(std::string_view text, const ConfigurationValue& value);

/// The tasks of each node out of Slurm's compressed counts: "2(x3),1" gives 2, 2, 2, 1. Throws
/// InvalidArgument likewise, also for a count of 0.
std::vector<int> expand_slurm_counts(std::string_view text, const ConfigurationValue& value);

}  // namespace lockstep
