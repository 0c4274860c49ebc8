#include "lockstep/benchmarks/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/benchmarks/markdown_table.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kMebibyte = 1 << 20;

}  // namespace

void Report::add_speed(const std::string& lockstep, const std::string& other, const AlternatingPairs& seconds,
                       double images, std::optional<Bar> bar) {
  ratios_.push_back({lockstep, other, "images/s", images / median(seconds.second),
                     images / median(seconds.first), median_with_interval(seconds.ratios()), bar});
}

void Report::add_memory(const std::string& lockstep, const std::string& other, const AlternatingPairs& bytes,
                        std::optional<Bar> bar) {
  ratios_.push_back({lockstep, other, "MiB", median(bytes.first) / kMebibyte,
                     median(bytes.second) / kMebibyte, median_with_interval(bytes.ratios()), bar});
}

void Report::add_start(const std::string& program, const std::vector<double>& seconds) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  starts_.push_back({program, median(seconds), *least, *most, seconds.size()});
}

std::string Report::json() const {
  nlohmann::ordered_json json{{"ratios", nlohmann::ordered_json::array()},
                              {"starts", nlohmann::ordered_json::array()}};
  for (const auto& row : ratios_) {
    nlohmann::ordered_json entry{{"lockstep", row.lockstep},
                                 {"against", row.other},
                                 {"unit", row.unit},
                                 {"lockstep_median", row.own_median},
                                 {"against_median", row.other_median},
                                 {"ratio", row.ratio.median},
                                 {"ratio_interval_95", {row.ratio.lower, row.ratio.upper}}};
    if (row.bar) {
      entry["bar"] = row.bar->str();
      entry["met"] = row.bar->is_met(row.ratio);
    }
    json["ratios"].push_back(std::move(entry));
  }
  for (const auto& row : starts_) {
    json["starts"].push_back({{"program", row.program},
                              {"seconds_median", row.median},
                              {"seconds_least", row.least},
                              {"seconds_most", row.most},
                              {"starts", row.count}});
  }
  return json.dump(2);
}

std::ostream& operator<<(std::ostream& stream, const Report& report) {
  MarkdownTable ratios({"Lockstep", "median", "against", "median", "ratio", "95 % interval", "bar", "met"});
  for (const auto& row : report.ratios_) {
    const auto amount = [&](double value) { return fmt::format("{:.0f} {}", value, row.unit); };
    ratios.add_row({row.lockstep, amount(row.own_median), row.other, amount(row.other_median),
                    fmt::format("{:.3f}", row.ratio.median),
                    fmt::format("{:.3f} to {:.3f}", row.ratio.lower, row.ratio.upper),
                    row.bar ? row.bar->str() : "",
                    row.bar ? (row.bar->is_met(row.ratio) ? "yes" : "no") : ""});
  }
  MarkdownTable starts({"from start to the end of the first step", "median", "least", "most", "starts"});
  for (const auto& row : report.starts_) {
    const auto seconds = [](double value) { return fmt::format("{:.2f} s", value); };
    starts.add_row(
        {row.program, seconds(row.median), seconds(row.least), seconds(row.most), std::to_string(row.count)});
  }
  if (!ratios.empty()) stream << ratios << '\n';
  if (!starts.empty()) stream << starts << '\n';
  return stream;
}

}  // namespace lockstep::benchmarks
