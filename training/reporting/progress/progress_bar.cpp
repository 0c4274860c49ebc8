#include "lockstep/training/reporting/progress/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/training/reporting/progress/internal/duration_text.h"
#include "lockstep/training/reporting/progress/internal/log_text.h"

namespace lockstep {
namespace {

constexpr int kLongestBar = 40;
constexpr int kShortestBar = 5;

double rate(const Progress& progress) {
  return progress.seconds > 0 ? static_cast<double>(progress.examples) / progress.seconds : 0;
}

double fraction(const Progress& progress) {
  if (progress.steps <= 0) return 0;
  return std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.steps), 0.0, 1.0);
}

std::string time_left(const Progress& progress) {
  const double done = fraction(progress);
  return duration_text(done > 0 ? progress.seconds / done * (1 - done) : -1);
}

std::string rate_text(const Progress& progress) {
  return fmt::format("{:.0f} {}/s", rate(progress), progress.unit);
}

/// Draws `length` columns and fills those done, in eighths of a column if the terminal can.
std::string bar(double done, int length, bool unicode) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int parts = unicode ? 8 : 1;
  const auto filled = static_cast<int>(std::floor(done * length * parts));
  std::string text;
  for (int i = 0; i < filled / parts; ++i) text += unicode ? "█" : "#";
  int columns = filled / parts;
  if (filled % parts != 0) {
    text += kEighths[filled % parts];
    ++columns;
  }
  return text + std::string(static_cast<size_t>(length - columns), ' ');
}

std::string steps_text(const Progress& progress) {
  return progress.steps > 0 ? fmt::format("{}/{}", progress.step, progress.steps)
                            : fmt::format("{}", progress.step);
}

std::string right_side(const Progress& progress, const std::vector<std::string>& details) {
  std::string text = "| " + steps_text(progress);
  for (size_t i = 0; i < details.size(); ++i) text += (i == 0 ? " [" : ", ") + details[i];
  return details.empty() ? text : text + "]";
}

}  // namespace

std::string render_bar(const Progress& progress, const BarStyle& style) {
  const double done = fraction(progress);
  const std::string left = fmt::format("{}  {:3.0f}%|", progress.label, std::floor(done * 100));
  std::vector<std::string> details{fmt::format("{}<{}", duration_text(progress.seconds), time_left(progress)),
                                   rate_text(progress)};
  for (const auto& [name, value] : progress.values)
    details.push_back(log_title(name) + " " + log_value_text(name, value));

  // The last column stays empty: a terminal may wrap a line that fills it.
  const int columns = std::max(style.width - 1, 0);
  std::string right = right_side(progress, details);
  const auto room = [&] { return columns - static_cast<int>(left.size() + right.size()); };
  while (room() < kShortestBar && !details.empty()) {
    details.pop_back();
    right = right_side(progress, details);
  }
  if (room() < kShortestBar) {
    const std::string text =
        fmt::format("{}  {:3.0f}%  {}", progress.label, std::floor(done * 100), steps_text(progress));
    return text.substr(0, static_cast<size_t>(columns));
  }
  const std::string blocks = bar(done, std::min(room(), kLongestBar), style.unicode);
  return left + (style.color ? "\033[36m" + blocks + "\033[0m" : blocks) + right;
}

std::string render_line(const Progress& progress) {
  std::string text = fmt::format("{}  step {}", progress.label, steps_text(progress));
  for (const auto& [name, value] : progress.values)
    text += "  " + log_title(name) + " " + log_value_text(name, value);
  return text + fmt::format("  {}  {} left", rate_text(progress), time_left(progress));
}

}  // namespace lockstep
