#include "lockstep/runtime/base/internal/error_line.h"

#include <iostream>

#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep {

void write_error_line(std::string_view line) {
  std::cerr << printable_lines(line) + "\n" << std::flush;
}

}  // namespace lockstep
