#include "lockstep/benchmarks/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/measurement/markdown_table.h"

namespace lockstep::benchmarks {
namespace {

using measurement::MarkdownTable;
using measurement::median;
using measurement::median_with_interval;

constexpr double kMebibyte = 1 << 20;

}  // namespace

void Report::add_speed(const std::string& lockstep, const std::string& other, const AlternatingPairs& seconds,
                       const WorkDone& work, std::optional<Bar> bar) {
  ratios_.push_back({lockstep, other, work.unit, work.count / median(seconds.second),
                     work.count / median(seconds.first), median_with_interval(seconds.ratios()), bar,
                     seconds.ratios()});
}

void Report::add_memory(const std::string& lockstep, const std::string& other, const AlternatingPairs& bytes,
                        std::optional<Bar> bar) {
  ratios_.push_back({lockstep, other, "MiB", median(bytes.first) / kMebibyte,
                     median(bytes.second) / kMebibyte, median_with_interval(bytes.ratios()), bar,
                     bytes.ratios()});
}

void Report::add_start(const std::string& program, const std::vector<double>& seconds) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  starts_.push_back({program, median(seconds), *least, *most, seconds.size()});
}

void Report::add_reference_op(const OpRow& row, const std::vector<double>& seconds) {
  ops_.push_back({kReferenceOp, row, median(seconds), std::nullopt, {}, ""});
}

void Report::add_op(const std::string& op, const OpRow& row, const AlternatingPairs& seconds) {
  ops_.push_back(
      {op, row, median(seconds.second), median_with_interval(seconds.ratios()), seconds.ratios(), ""});
}

void Report::add_unmeasured_op(const std::string& op, const std::string& replicas,
                               const std::string& reason) {
  ops_.push_back({op, {replicas, "all", 0}, 0, std::nullopt, {}, reason});
}

void Report::add_profile(const std::string& program, int steps, const DeviceUse& use) {
  profiles_.push_back({program, steps, use});
}

void Report::add_not_measured(const std::string& part, const std::string& reason) {
  not_measured_.push_back({part, reason});
}

std::string Report::json() const {
  nlohmann::ordered_json json;
  for (const char* table : {"ratios", "ops", "profiles", "starts", "not_measured"})
    json[table] = nlohmann::ordered_json::array();
  for (const auto& row : ratios_) {
    nlohmann::ordered_json entry{{"lockstep", row.lockstep},
                                 {"against", row.other},
                                 {"unit", row.unit},
                                 {"lockstep_median", row.own_median},
                                 {"against_median", row.other_median},
                                 {"ratio", row.ratio.median},
                                 {"ratio_interval_95", {row.ratio.lower, row.ratio.upper}},
                                 {"pair_ratios", row.pair_ratios}};
    if (row.bar) {
      entry["bar"] = row.bar->str();
      entry["met"] = row.bar->is_met(row.ratio);
    }
    json["ratios"].push_back(std::move(entry));
  }
  for (const auto& row : ops_) {
    nlohmann::ordered_json entry{
        {"op", row.name}, {"replicas", row.row.replicas}, {"tensors", row.row.tensors}};
    if (row.not_measured.empty()) {
      entry["bytes"] = row.row.bytes;
      entry["seconds_median"] = row.seconds;
    } else {
      entry["not_measured"] = row.not_measured;
    }
    if (row.ratio) {
      entry["against"] = kReferenceOp;
      entry["ratio"] = row.ratio->median;
      entry["ratio_interval_95"] = {row.ratio->lower, row.ratio->upper};
      entry["pair_ratios"] = row.pair_ratios;
    }
    json["ops"].push_back(std::move(entry));
  }
  for (const auto& row : profiles_) {
    nlohmann::ordered_json entry{{"program", row.program},
                                 {"steps", row.steps},
                                 {"microseconds", row.use.microseconds},
                                 {"idle_share", row.use.idle_share},
                                 {"longest_idle_microseconds", row.use.longest_idle_microseconds},
                                 {"copy_overlap_share", nullptr}};
    if (row.use.copy_overlap_share) entry["copy_overlap_share"] = *row.use.copy_overlap_share;
    json["profiles"].push_back(std::move(entry));
  }
  for (const auto& row : starts_) {
    json["starts"].push_back({{"program", row.program},
                              {"seconds_median", row.median},
                              {"seconds_least", row.least},
                              {"seconds_most", row.most},
                              {"starts", row.count}});
  }
  for (const auto& row : not_measured_)
    json["not_measured"].push_back({{"part", row.part}, {"reason", row.reason}});
  return json.dump(2);
}

std::ostream& operator<<(std::ostream& stream, const Report& report) {
  const auto interval = [](const MedianInterval& ratio) {
    return fmt::format("{:.3f} to {:.3f}", ratio.lower, ratio.upper);
  };
  MarkdownTable ratios({"Lockstep", "median", "against", "median", "ratio", "95 % interval", "bar", "met"});
  for (const auto& row : report.ratios_) {
    const auto amount = [&](double value) { return fmt::format("{:.0f} {}", value, row.unit); };
    ratios.add_row({row.lockstep, amount(row.own_median), row.other, amount(row.other_median),
                    fmt::format("{:.3f}", row.ratio.median), interval(row.ratio),
                    row.bar ? row.bar->str() : "",
                    row.bar ? (row.bar->is_met(row.ratio) ? "yes" : "no") : ""});
  }
  MarkdownTable ops({"cross-device op", "replicas", "sum of", "median", std::string("over ") + kReferenceOp,
                     "95 % interval"});
  for (const auto& row : report.ops_) {
    ops.add_row({row.name, row.row.replicas, row.row.tensors,
                 row.not_measured.empty() ? fmt::format("{:.3f} ms", row.seconds * 1e3)
                                          : "not measured: " + row.not_measured,
                 row.ratio ? fmt::format("{:.3f}", row.ratio->median) : "",
                 row.ratio ? interval(*row.ratio) : ""});
  }
  MarkdownTable profiles({"profile of", "steps", "time", "the GPU idles", "longest at once",
                          "copies from the host during kernels"});
  for (const auto& row : report.profiles_) {
    const auto share = [](double value) { return fmt::format("{:.2f} %", value * 100); };
    profiles.add_row({row.program, std::to_string(row.steps),
                      fmt::format("{:.1f} ms", row.use.microseconds / 1e3), share(row.use.idle_share),
                      fmt::format("{:.1f} us", row.use.longest_idle_microseconds),
                      row.use.copy_overlap_share ? share(*row.use.copy_overlap_share) : "no copies"});
  }
  MarkdownTable starts({"from start to the end of the first step", "median", "least", "most", "starts"});
  for (const auto& row : report.starts_) {
    const auto seconds = [](double value) { return fmt::format("{:.2f} s", value); };
    starts.add_row(
        {row.program, seconds(row.median), seconds(row.least), seconds(row.most), std::to_string(row.count)});
  }
  for (const auto& table : {ratios, ops, profiles, starts}) {
    if (!table.empty()) stream << table << '\n';
  }
  for (const auto& row : report.not_measured_) stream << row.part << ": not measured: " << row.reason << '\n';
  return stream;
}

}  // namespace lockstep::benchmarks
