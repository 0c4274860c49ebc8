#pragma once

#include <ostream>
#include <string>

#include "lockstep/benchmarks/scaling/measured_scaling.h"
#include "lockstep/benchmarks/scaling/scaling_options.h"

namespace lockstep::benchmarks {

/// The measurements, the error of the predictions for them, and predictions for other clusters, as Markdown
/// tables or as JSON with the same rows.
class ScalingReport {
 public:
  ScalingReport(const ScalingOptions& options, MeasuredScaling measurement);

  /// {"compute": [...], "exchanges": [...], "checks": [...], "worst_error": ..., "weak_scaling": [...],
  /// "bucket_sizes": [...], "strong_scaling": [...], "gpu_cluster": [...]}, one object a row.
  std::string json() const;
  friend std::ostream& operator<<(std::ostream& stream, const ScalingReport& report);

 private:
  struct Row {
    std::string link;
    int num_workers = 1;
    double num_examples = 0;  ///< of each worker
    double seconds[4] = {};   ///< as kCommunications
    double efficiency[4] = {};
  };
  /// Steps that overlap, with buckets of several sizes.
  struct BucketRow {
    std::string link;
    int num_workers = 1;
    int64_t chosen_bytes = 0;  ///< by the library
    double chosen_seconds = 0;
    double default_seconds = 0;  ///< with kDefaultBuckets
    int64_t best_bytes = 0;      ///< of all powers of two
    double best_seconds = 0;
  };
  struct GpuRow {
    std::string ring;
    double seconds[4] = {};
    double efficiency[4] = {};
  };

  void predict_weak_scaling();
  void predict_bucket_sizes();
  void predict_strong_scaling();
  void predict_gpu_cluster();
  double worst_error() const;

  ScalingOptions options_;
  MeasuredScaling measured_;
  std::vector<Row> weak_;
  std::vector<BucketRow> bucket_sizes_;
  std::vector<Row> strong_;
  std::vector<GpuRow> gpu_;
};

}  // namespace lockstep::benchmarks
