#pragma once

#include <string>

namespace lockstep::apps {

/// Writes `text` to standard output and flushes it.
void print(const std::string& text);

/// Writes the line "`program`: `text`" to standard error and flushes it.
void log_line(const std::string& program, const std::string& text);

}  // namespace lockstep::apps
