#pragma once

#include <c10/util/StringUtil.h>

#include <string>

#include "lockstep/training/state/state_dict.h"

namespace lockstep::apps {

/// Returns the lines of a printed configuration that say which tensors of the file at `path` were loaded.
inline std::string loaded_weights_text(const std::string& path, const LoadReport& report) {
  std::string text = c10::str("weights          ", report.loaded.size(), " tensors of ", path, "\n");
  for (const auto& line : report.describe()) text += "                 " + line + "\n";
  return text;
}

}  // namespace lockstep::apps
