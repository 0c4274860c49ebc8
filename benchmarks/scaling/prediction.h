#pragma once

#include <string>
#include <vector>

#include "lockstep/benchmarks/scaling/exchange_model.h"
#include "lockstep/benchmarks/scaling/line_fit.h"
#include "lockstep/benchmarks/scaling/step_model.h"
#include "lockstep/training/layouts/all_reduce_model.h"

namespace lockstep::benchmarks {

struct NamedLink {
  std::string name;  ///< such as "10 Gbit/s, 25 us"
  DeviceLink link;
};

/// Reads gigabits a second and microseconds, such as 10:25. Throws std::invalid_argument for anything else.
NamedLink parse_link(const std::string& text);

/// Steps of one replica with any number of images, out of some that were measured.
class ComputeModel {
 public:
  struct Measured {
    double num_examples = 0;
    ComputeTimes times;
  };
  /// Forward and backward are lines over the images; the optimizer's time, and when within backward a bucket
  /// becomes ready, are those of the most images. Throws std::invalid_argument without any measurement.
  explicit ComputeModel(const std::vector<Measured>& measured);

  ComputeTimes at(double num_examples) const;

 private:
  Line forward_;
  Line backward_;
  ComputeTimes most_;
};

/// One of the four ways to communicate that the tables compare.
struct Communication {
  Overlap overlap = Overlap::kBackward;
  bool compressed = false;
};
inline constexpr Communication kCommunications[] = {
    {Overlap::kBackward, false}, {Overlap::kNone, false}, {Overlap::kBackward, true}, {Overlap::kNone, true}};

/// The share of bytes that is left of compressed gradients: 16 bits instead of 32.
inline constexpr double kCompressedShare = 0.5;

/// Machines with one worker of one replica each, all like the one that was measured.
struct ClusterModel {
  ExchangeCost plain;
  ExchangeCost compressed;
  int num_tensors = 0;  ///< among the parameters, see agreement_bytes()
};

/// At the end of a step the library sums two 32-bit flags a parameter tensor and one a replica.
double agreement_bytes(int num_tensors, int num_replicas);

/// Returns the sizes that buckets have under a policy: those of `given`, with the library's choice in place
/// of zeros.
BucketOptions buckets_of_library(const BucketOptions& given, int num_workers, const ExchangePolicy& policy);

/// Zeros in `buckets` are chosen as the library does between machines.
double predict_step(const ClusterModel& cluster, const ComputeTimes& compute, int num_workers,
                    const DeviceLink& link, const Communication& communication, const BucketOptions& buckets);

/// The step of one of `num_processes` processes that share this machine. `cores` are the machine's.
/// `in_buckets` is how buckets are exchanged, `plain` what is not compressed. Zeros in `buckets` are chosen
/// as the library does.
double predict_local_step(const LocalFit& plain, const LocalFit& in_buckets, const ComputeTimes& compute,
                          int num_tensors, int cores, Overlap overlap, const BucketOptions& buckets);

/// GPUs of which nothing is measured here: all of it is assumed.
struct GpuCluster {
  LinkedMachines topology{
      .num_machines = 4, .replicas_each = 4, .within = {10e-6, 100e9 / 8}, .between = {25e-6, 10e9 / 8}};
  double compute_seconds = 0.2;  ///< of a step of one replica; a third of it forward, two thirds backward
  double gradient_bytes = 102.4e6;
  double first_bucket_bytes = 1 << 20;
  double bucket_bytes = 25 << 20;
};

enum class RingKind { kFlat, kHierarchical };

/// Exchanges take nothing of the GPUs' compute, and their software nothing of the time.
double predict_gpu_step(const GpuCluster& cluster, RingKind ring, const Communication& communication);

}  // namespace lockstep::benchmarks
