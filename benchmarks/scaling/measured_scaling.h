#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/benchmarks/scaling/prediction.h"
#include "lockstep/measurement/statistics.h"

namespace lockstep::benchmarks {

using measurement::MedianInterval;

/// One measurement of compute.
struct ComputeSample {
  ComputeTimes times;
  double copy_seconds = 0;  ///< that backward took for the buckets
};

/// The compute of one replica while `num_processes` processes train, each by itself; medians over the rounds.
struct ComputeRow {
  int num_processes = 1;
  int64_t num_examples = 0;
  ComputeSample sample;
};

/// A way to exchange between processes of this machine.
struct ExchangeKind {
  bool compressed = false;
  std::optional<PlanAlgorithm> algorithm{};  ///< none: the library chooses
  bool uses_tcp = false;                     ///< else shared memory

  /// Returns the policy by which the library exchanges.
  ExchangePolicy policy() const;
};

/// The exchanges of several sizes among so many processes; medians over the rounds.
struct ExchangeRows {
  int num_processes = 2;
  ExchangeKind kind;
  std::vector<ExchangeSample> samples;
  LocalFit fit;
};

/// A measured step and the predicted one.
struct CheckRow {
  int num_processes = 1;
  Communication communication;
  double predicted_seconds = 0;
  MedianInterval measured_seconds;

  /// Predicted over measured, less 1.
  double error() const { return predicted_seconds / measured_seconds.median - 1; }
};

/// The measurements that the tables show.
struct MeasuredScaling {
  std::vector<ComputeRow> compute;
  std::vector<ExchangeRows> exchanges;
  double conversion_seconds_per_byte = 0;
  std::vector<CheckRow> checks;
  int64_t num_parameters = 0;
  int num_tensors = 0;
  int num_cores = 1;  ///< of this machine

  /// Of one process that has the machine to itself.
  ComputeModel compute_model() const;
  /// Out of the exchanges of two processes over TCP. Throws std::logic_error if they are missing.
  ClusterModel cluster_model() const;
};

}  // namespace lockstep::benchmarks
