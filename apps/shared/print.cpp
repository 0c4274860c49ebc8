#include "lockstep/apps/shared/print.h"

#include <iostream>

namespace lockstep::apps {

void print(const std::string& text) {
  std::cout << text << std::flush;
}

void log_line(const std::string& program, const std::string& text) {
  std::cerr << program + ": " + text + "\n" << std::flush;
}

}  // namespace lockstep::apps
