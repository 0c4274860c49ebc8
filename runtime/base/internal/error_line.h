#pragma once

#include <string_view>

namespace lockstep {

/// Writes a line to standard error. Line ends and tabs in it stay; other characters that could steer the
/// terminal become visible, since names of files and texts of checkpoints may be part of the line. Lines of
/// several threads do not mix.
void write_error_line(std::string_view line);

}  // namespace lockstep
