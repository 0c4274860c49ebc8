#include "lockstep/apps/compare_strategies/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/apps/compare_strategies/trials/parameter_file.h"

namespace lockstep::apps {
namespace {

template <typename Get>
double median_of(const std::vector<MeasuredRun>& runs, const Get& get) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const auto& run : runs) values.push_back(get(run));
  return measurement::median(std::move(values));
}

std::vector<double> speeds_of(const std::vector<MeasuredRun>& runs) {
  std::vector<double> speeds;
  speeds.reserve(runs.size());
  for (const auto& run : runs) speeds.push_back(run.examples_per_second());
  return speeds;
}

}  // namespace

Spread spread_of(std::vector<double> rounds) {
  const double median = measurement::median(rounds);
  Spread spread{.median = median, .interval = std::nullopt, .rounds = std::move(rounds)};
  if (spread.rounds.size() >= kFewestRoundsForAnInterval)
    spread.interval = measurement::median_with_interval(spread.rounds);
  return spread;
}

std::vector<double> speed_ratios(const ComparisonRow& row, const ComparisonRow& other) {
  const auto& speeds = row.examples_per_second.rounds;
  const auto& others = other.examples_per_second.rounds;
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(speeds.size(), others.size()); ++round)
    ratios.push_back(speeds[round] / others[round]);
  return ratios;
}

Comparison::Comparison(const std::vector<ComparedStrategy>& strategies) {
  for (const auto& strategy : strategies) records_.push_back({.strategy = strategy});
}

void Comparison::add(int strategy, TrialResult result) {
  Record& record = records_.at(static_cast<size_t>(strategy));
  if (record.runs.empty()) record.parameters = std::move(result.parameters);
  record.runs.push_back(std::move(result.run));
}

void Comparison::add_failure(int strategy, TrialFailure failure) {
  records_.at(static_cast<size_t>(strategy)).failure = std::move(failure);
}

bool Comparison::has_failed(int strategy) const {
  return records_.at(static_cast<size_t>(strategy)).failure.has_value();
}

int Comparison::reference() const {
  const auto found = std::find_if(records_.begin(), records_.end(), [](const Record& record) {
    return !record.failure && !record.runs.empty();
  });
  return found == records_.end() ? -1 : static_cast<int>(found - records_.begin());
}

const MeasuredRun* Comparison::any_run() const {
  for (const auto& record : records_) {
    if (!record.runs.empty()) return &record.runs.front();
  }
  return nullptr;
}

std::vector<ComparisonRow> Comparison::rows() const {
  std::vector<ComparisonRow> rows;
  for (const auto& record : records_) {
    ComparisonRow row{.strategy = record.strategy, .failure = record.failure};
    if (!record.failure && !record.runs.empty()) {
      const auto& first = record.runs.front();
      row.replicas = first.replicas;
      row.description = first.description;
      row.losses = first.losses;
      row.ranks = first.ranks;
      row.loss = first.losses.empty() ? std::numeric_limits<double>::quiet_NaN() : first.losses.back();
      row.examples_per_second = spread_of(speeds_of(record.runs));
      for (const auto& run : record.runs)
        row.peak_memory_bytes = std::max(row.peak_memory_bytes, run.peak_memory_bytes);
      row.data_wait_share =
          median_of(record.runs, [](const MeasuredRun& run) { return run.data_wait_seconds / run.seconds; });
      row.communication_share = median_of(
          record.runs, [](const MeasuredRun& run) { return run.communication_seconds / run.seconds; });
    }
    rows.push_back(std::move(row));
  }
  const int index = reference();
  if (index < 0) return rows;
  const auto& against = records_[static_cast<size_t>(index)];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].failure || records_[i].runs.empty()) continue;
    rows[i].ratio = spread_of(speed_ratios(rows[i], rows[static_cast<size_t>(index)]));
    rows[i].parameter_difference = largest_difference(records_[i].parameters, against.parameters);
  }
  return rows;
}

}  // namespace lockstep::apps
