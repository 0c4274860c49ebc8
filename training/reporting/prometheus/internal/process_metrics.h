#pragma once

#include <prometheus/collectable.h>
#include <prometheus/labels.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace lockstep {

/// Memory and time of this process, read at each scrape. Names and meanings are those of Prometheus's own
/// client libraries.
class ProcessMetrics : public prometheus::Collectable {
 public:
  /// Every sample has these labels.
  explicit ProcessMetrics(const prometheus::Labels& labels);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type,
                                  double value) const;

  std::vector<prometheus::ClientMetric::Label> labels_;
  double start_seconds_ = 0;  // since 1970
};

}  // namespace lockstep
