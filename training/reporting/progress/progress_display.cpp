#include "lockstep/training/reporting/progress/progress_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value == nullptr ? "" : value;
}

/// Checks the variables that decide a locale's character set, in order of precedence.
bool is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = variable(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

DisplayOptions display_of_stderr() {
  const std::string terminal = variable("TERM");
  return {.bar = isatty(STDERR_FILENO) == 1 && !terminal.empty() && terminal != "dumb",
          .unicode = is_utf8(),
          .color = variable("NO_COLOR").empty(),
          .width = terminal_width,
          .clock = steady_seconds};
}

ProgressDisplay::ProgressDisplay(std::ostream& out, DisplayOptions options)
    : out_(out), options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  last_ = options_.clock();
}

bool ProgressDisplay::is_due() const {
  if (options_.is_silent) return false;
  return options_.clock() - last_ >= (options_.bar ? kBarSeconds : kLineSeconds);
}

void ProgressDisplay::show(const Progress& progress) {
  if (options_.bar) {
    const BarStyle style{.width = options_.width(), .unicode = options_.unicode, .color = options_.color};
    // Erasing only the rest of the line never leaves the line empty.
    out_ << '\r' << render_bar(progress, style) << "\033[K" << std::flush;
    is_drawn_ = true;
  } else {
    out_ << render_line(progress) << std::endl;
  }
  last_ = options_.clock();
}

void ProgressDisplay::clear() {
  if (is_drawn_) out_ << "\r\033[K" << std::flush;
  is_drawn_ = false;
  last_ = options_.clock();
}

}  // namespace lockstep
