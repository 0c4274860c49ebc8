#include "lockstep/apps/shared/print.h"

#include <iostream>

#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {

void print(const std::string& text) {
  std::cout << printable_lines(text) << std::flush;
}

void log_line(const std::string& program, const std::string& text) {
  write_error_line(program + ": " + text);
}

}  // namespace lockstep::apps
