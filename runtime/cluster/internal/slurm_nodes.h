#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {

/// The maximum number of nodes a list may expand to; longer lists are taken for a mistake.
inline constexpr int kMaxSlurmNodes = 65536;

/// Expands Slurm's compressed node list, in its order: "n[01-03,7],gpu-a[1-2]x[3-4],login" gives n01, n02,
/// n03, n7, gpu-a1x3, gpu-a1x4, gpu-a2x3, gpu-a2x4, login. Numbers are padded to the width of the range's
/// first number. Throws InvalidArgument naming `value` and what is wrong; for more than kMaxSlurmNodes nodes
/// it throws before creating any.
std::vector<std::string> expand_slurm_nodes(std::string_view text, const ConfigurationValue& value);

/// Expands Slurm's compressed task counts per node: "2(x3),1" gives 2, 2, 2, 1. Throws InvalidArgument in the
/// same cases, and for a count of 0.
std::vector<int> expand_slurm_counts(std::string_view text, const ConfigurationValue& value);

}  // namespace lockstep
