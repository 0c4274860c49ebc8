#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "lockstep/training/layouts/all_reduce_model.h"

namespace lockstep {

/// A mesh, and how a training uses it. The axes are in the order of the mesh: ranks along `tensor` are
/// neighbours.
struct PlannedLayout {
  int64_t data = 1;      ///< replicas with copies of what those along `shard` have
  int64_t shard = 1;     ///< replicas that divide memory among them, as `stage` says
  int64_t expert = 1;    ///< replicas that share the experts
  int64_t pipeline = 1;  ///< ranks with consecutive parts of the model
  int64_t context = 1;   ///< ranks with some tokens of each sequence
  int64_t tensor = 1;    ///< ranks with a part of each layer
  /// Of the sharding, see ShardingOptions: along `shard`, or else along `expert`. Experts are not divided.
  int stage = 0;
  int64_t micro_batches = 1;         ///< of each replica in a step
  bool recomputes = false;           ///< parts are computed again in backward
  bool has_sequence_shards = false;  ///< between layers that are cut along `tensor`
  std::string schedule = "1f1b";     ///< of the pipeline, see make_pipeline_schedule()
  int64_t stages_per_rank = 1;       ///< 2 or more for the schedule "interleaved", 2 for "zb-v"
  /// Parameter servers, which hold all parameters, and tables of embeddings by rows; 0: each replica has all
  /// of them.
  int64_t servers = 0;

  int64_t ranks() const { return data * shard * expert * pipeline * context * tensor; }
  int64_t replicas() const { return data * shard * expert; }
  int64_t stages() const { return pipeline * stages_per_rank; }
  /// Returns the ranks that divide the state of the optimizer.
  int64_t parts() const { return stage == 0 ? 1 : shard > 1 ? shard : expert; }
  /// Returns the axes with several ranks as the flag --mesh has them, such as "data=2,tensor=4"; "data=1" if
  /// there are none.
  std::string mesh() const;
  bool operator==(const PlannedLayout&) const = default;
};

/// Machines with devices that are all alike.
struct PlannedCluster {
  int64_t devices = 1;
  int64_t devices_per_machine = 1;
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< of a device, for the training
  double flops_per_second = 1e12;  ///< of a device's matrix products, as fast as they really are
  double bytes_per_second = 1e11;  ///< that a device's other operators read and write
  double operator_seconds = 0;     ///< that each operator takes at least
  DeviceLink within{};             ///< between two devices of a machine
  DeviceLink between{};            ///< of a machine to the others, shared by its devices
  /// The share of a device's computing that communication stops meanwhile, 0 to 1: 1 on CPUs, whose cores do
  /// both, so that nothing is hidden behind backward.
  double taken_share = 0;
  bool shares_units = false;  ///< ranks of a machine have whole units together, as replicas on CPUs do
  double examples_per_second = std::numeric_limits<double>::infinity();  ///< that the input delivers to all
  /// Of a parameter server that runs on a machine's CPU, besides its devices; 0: servers are among the
  /// devices.
  double server_memory_bytes = 0;

  int64_t machines() const { return (devices + devices_per_machine - 1) / devices_per_machine; }
  /// Returns the devices that are left for the ranks of a layout.
  int64_t devices_for_ranks(const PlannedLayout& layout) const {
    return server_memory_bytes > 0 ? devices : devices - layout.servers;
  }
};

}  // namespace lockstep
