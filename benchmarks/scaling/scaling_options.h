#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/benchmarks/loops/workload.h"
#include "lockstep/benchmarks/scaling/prediction.h"

namespace lockstep::benchmarks {

struct ScalingOptions {
  int64_t image_size = 64;
  int64_t batch_size = 32;                 ///< of each worker
  int64_t strong_batch_size = 256;         ///< of all workers, for strong scaling
  std::optional<int64_t> bucket_bytes;     ///< none: chosen by the library
  std::string compression = "float16";     ///< what the rows with compression have
  std::vector<int> processes = {1, 2, 4};  ///< that the prediction is checked with; ascending, with 1 and 2
  std::vector<int64_t> exchange_bytes;     ///< whose time is measured
  int num_rounds = 9;
  int steps = 6;  ///< of one measurement
  std::vector<NamedLink> links;
  GpuCluster gpu_cluster;
  std::string json;  ///< a file for the results; empty: none

  /// The job to be, where this process is one, and what its starter says to it.
  std::string serve;
  int num_processes = 1;
  int64_t job_batch_size = 1;  ///< over all processes
  std::string job_compression = "none";
  bool job_overlaps = true;
  std::string job_algorithm = "auto";
  bool job_uses_tcp = false;

  /// Zeros: chosen by the library.
  BucketOptions buckets() const { return {.bucket_bytes = bucket_bytes.value_or(0)}; }
  /// With this many images over all workers.
  Workload workload(int64_t global_batch_size) const;
};

/// Reads the command line. Nothing where --help was asked for and has been printed. Throws
/// std::invalid_argument naming the flag.
std::optional<ScalingOptions> parse_scaling_options(int argc, char** argv);

}  // namespace lockstep::benchmarks
