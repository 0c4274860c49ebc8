#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep::benchmarks {

/// The devices of the replicas in a comparison of cross-device ops.
struct ReplicaDevices {
  std::vector<std::string> names;
  int replicas_per_device = 1;

  int num_replicas() const { return static_cast<int>(names.size()) * replicas_per_device; }
  /// Such as "2 replicas on gpu:0".
  std::string str() const;
};

/// Replicas that sum the same tensors over and over by one cross-device op, a thread each.
class AllReduceLoop {
 public:
  /// `op` as make_cross_device_ops() names it. Throws what MirroredStrategy throws where it cannot serve the
  /// devices.
  AllReduceLoop(const std::string& op, const ReplicaDevices& devices);

  /// Sets the tensors that seconds_for() sums: on each replica, a float32 tensor of each of these sizes in
  /// bytes. Throws std::runtime_error where the op does not sum them correctly.
  void set_tensors(const std::vector<int64_t>& bytes);

  /// Sums all tensors `repetitions` times, one call a tensor. Blocks until all threads and their devices are
  /// done.
  double seconds_for(int repetitions);

 private:
  using Tensors = std::vector<torch::Tensor>;

  std::string op_;
  MirroredStrategy strategy_;
  std::unique_ptr<PerReplica<Tensors>> tensors_;
};

}  // namespace lockstep::benchmarks
