#include "lockstep/apps/inspect_run/epoch_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep::apps {
namespace {

constexpr std::array<const char*, 4> kMetricsOfTheBest = {"validation_accuracy", "validation_loss",
                                                          "accuracy", "loss"};

/// All metrics of epochs that are shown. A file may name any number of others.
constexpr const char* kMetrics[] = {"epoch",
                                    "loss",
                                    "accuracy",
                                    "perplexity",
                                    "validation_loss",
                                    "validation_accuracy",
                                    "validation_perplexity",
                                    "above_entropy",
                                    "learning_rate",
                                    "images_per_second",
                                    "tokens_per_second",
                                    "model_flop_utilization",
                                    "data_wait_share",
                                    "seconds"};

}  // namespace

const MetricValue* find_value(const MetricRow& row, const std::string& name) {
  const auto found =
      std::find_if(row.begin(), row.end(), [&](const auto& entry) { return entry.first == name; });
  return found == row.end() ? nullptr : &found->second;
}

std::optional<double> find_number(const MetricRow& row, const std::string& name) {
  const MetricValue* value = find_value(row, name);
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(value)) return *number;
  const std::string& text = std::get<std::string>(*value);
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

void EpochSummary::add(MetricRow row) {
  for (size_t i = 0; i < kMetricsOfTheBest.size(); ++i) {
    const std::string metric = kMetricsOfTheBest[i];
    const auto value = find_number(row, metric);
    if (!value || !std::isfinite(*value)) continue;
    const double sign = metric.ends_with("accuracy") ? 1 : -1;
    auto& best = best_[i];
    if (!best || sign * *value > sign * best->value)
      best = BestEpoch{count_, find_number(row, "epoch"), metric, *value};
  }
  for (const char* metric : kMetrics) {
    if (find_number(row, metric)) metrics_.insert(metric);
  }
  if (kept_.size() < num_kept_) {
    kept_.push_back(std::move(row));
  } else if (num_kept_ > 0) {
    kept_[count_ % num_kept_] = std::move(row);
  }
  ++count_;
}

std::vector<MetricRow> EpochSummary::last() const {
  std::vector<MetricRow> rows = kept_;
  if (count_ > rows.size() && !rows.empty()) {
    const auto oldest = static_cast<std::ptrdiff_t>(count_ % rows.size());
    std::rotate(rows.begin(), rows.begin() + oldest, rows.end());
  }
  return rows;
}

std::optional<BestEpoch> EpochSummary::best() const {
  for (const auto& best : best_) {
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace lockstep::apps
