#pragma once

#include <string>

namespace lockstep::apps {

/// The resolved value that says how many row groups of Parquet files a batch's examples are from.
inline constexpr const char* kLanes = "row-groups-in-a-batch";

/// Throws CheckpointError naming --parquet-memory if it differs between two configuration files, and so do
/// the row groups that a batch's examples are from: a run that goes on with the other order of the examples
/// would see some of them twice in an epoch and others not at all. A text that is no configuration, or that
/// does not say it, is let pass.
void require_kept_order(const std::string& earlier, const std::string& now);

}  // namespace lockstep::apps
