#include "lockstep/benchmarks/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::benchmarks {

Report::Report()
    : ratios_({"Lockstep", "median", "against", "median", "ratio", "95 % interval", "bar", "met"}),
      starts_({"from start to the end of the first step", "median", "least", "most", "starts"}) {}

void Report::add_ratio(const std::string& lockstep, const std::string& other, const std::string& own_median,
                       const std::string& other_median, const std::vector<double>& ratios,
                       std::optional<Bar> bar) {
  const MedianInterval ratio = median_with_interval(ratios);
  ratios_.add_row({lockstep, own_median, other, other_median, fmt::format("{:.3f}", ratio.median),
                   fmt::format("{:.3f} to {:.3f}", ratio.lower, ratio.upper), bar ? bar->str() : "",
                   bar ? (bar->is_met(ratio) ? "yes" : "no") : ""});
}

void Report::add_speed(const std::string& lockstep, const std::string& other, const AlternatingPairs& seconds,
                       double images, std::optional<Bar> bar) {
  const auto speed = [images](const std::vector<double>& times) {
    return fmt::format("{:.0f} images/s", images / median(times));
  };
  add_ratio(lockstep, other, speed(seconds.second), speed(seconds.first), seconds.ratios(), bar);
}

void Report::add_memory(const std::string& lockstep, const std::string& other, const AlternatingPairs& bytes,
                        std::optional<Bar> bar) {
  const auto size = [](const std::vector<double>& values) {
    return fmt::format("{:.0f} MiB", median(values) / (1 << 20));
  };
  add_ratio(lockstep, other, size(bytes.first), size(bytes.second), bytes.ratios(), bar);
}

void Report::add_start(const std::string& program, const std::vector<double>& seconds) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  starts_.add_row({program, fmt::format("{:.2f} s", median(seconds)), fmt::format("{:.2f} s", *least),
                   fmt::format("{:.2f} s", *most), std::to_string(seconds.size())});
}

std::ostream& operator<<(std::ostream& stream, const Report& report) {
  if (!report.ratios_.empty()) stream << report.ratios_ << '\n';
  if (!report.starts_.empty()) stream << report.starts_ << '\n';
  return stream;
}

}  // namespace lockstep::benchmarks
