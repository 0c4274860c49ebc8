#pragma once

#include <string>

namespace lockstep::apps {

// All text of the programs reaches the terminal here. Names, values and messages in it may come from a file
// that somebody else wrote, so characters that could steer the terminal become visible. Line ends and tabs
// stay.

/// Writes `text` to standard output and flushes it.
void print(const std::string& text);

/// Writes the line "`program`: `text`" to standard error and flushes it.
void log_line(const std::string& program, const std::string& text);

}  // namespace lockstep::apps
