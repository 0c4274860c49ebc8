#pragma once

#include <string>
#include <vector>

#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep::apps {

struct MemoryChart {
  std::string title;
  std::vector<LayoutMemory> ranks{};  ///< of each stage of the pipeline, or of a replica and a server
  int64_t devices_per_stage = 1;      ///< that need the same
  double limit = 0;                   ///< bytes of a device; 0: no line
  bool has_servers = false;
};

/// Returns an SVG file with a bar for each stage, cut into what its memory holds, and a line at the limit. It
/// follows the reader's choice of light or dark, and has numbers that show when the pointer rests on a part.
std::string memory_chart_svg(const MemoryChart& chart);

}  // namespace lockstep::apps
