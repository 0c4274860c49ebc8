#pragma once

#include <string>

#include "lockstep/benchmarks/child_process.h"
#include "lockstep/benchmarks/loops/workload.h"

namespace lockstep::benchmarks {

/// This program as a job: `name` is bare, mirrored, independent, workers (each replica a process of its own)
/// or worker (one of these). See RemoteTraining for what a job does.
Command own_job(const std::string& name, const Workload& workload, int num_replicas);

/// Our job mirrored, workers or worker with a stage of ShardingOptions.
Command with_sharding(Command job, int stage);

/// Our job mirrored, workers or worker with a GPT that is cut among so many ranks.
Command with_tensor_axis(Command job, int ranks);

/// Our job mirrored, workers or worker with a GPT whose layers are divided among so many ranks.
Command with_pipeline_axis(Command job, const Workload& workload, int ranks);

/// PyTorch's DistributedDataParallel, one process for each replica, with `python` and its program in the
/// folder `peers`: over Gloo on the CPU, over NCCL on GPUs, of which each replica takes one.
Command torch_job(const std::string& python, const std::string& peers, const Workload& workload,
                  int num_replicas);

/// The same job with this process's allocator and its options instead of the C library's.
Command with_own_allocator(Command job);

/// PyTorch's job with its state divided among the ranks: `way` is zero1 (ZeroRedundancyOptimizer) or fsdp2
/// (fully_shard, a block a unit).
Command with_torch_sharding(Command job, const std::string& way);

/// PyTorch's job with a GPT that is cut among its ranks, by parallelize_module.
Command with_torch_tensor(Command job);

/// PyTorch's job with a GPT whose layers are divided among its ranks, by torch.distributed.pipelining. Runs
/// torch_schedule().
Command with_torch_pipeline(Command job, const Workload& workload);
/// Returns the workload's schedule, or 1F1B in place of ZB-H1, which PyTorch does not have, and of ZB-V,
/// which it does not run over Gloo.
std::string torch_schedule(const Workload& workload);

/// PyTorch's job with its model under torch.compile.
Command with_compiled_model(Command job);

/// PyTorch's job in one process on the CPU, with all cores and the whole batch.
Command in_one_process(Command job);

/// TensorFlow's MirroredStrategy on logical CPUs.
Command tensorflow_job(const std::string& python, const std::string& peers, const Workload& workload,
                       int num_replicas);

}  // namespace lockstep::benchmarks
