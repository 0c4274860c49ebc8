#pragma once

#include "lockstep/benchmarks/benchmark_options.h"
#include "lockstep/benchmarks/report.h"

namespace lockstep::benchmarks {

/// How many times the other parts' steps are measured where batches are made ahead: some of them are ready
/// when a measurement begins, and would make the input look faster than it is.
inline constexpr int kStepsOfInput = 8;

/// Variants of PyTorch's job: with the C library's allocator or this process's, with its model under
/// torch.compile, or that in one process that has all cores and does not communicate.
enum class TorchPeer { kAsInstalled, kSameAllocator, kCompiled, kCompiledProcess };

// Each measures one part of the benchmark and adds it to the report. Standard error has a line for each
// program that is started and for each pair.

/// One replica of MirroredStrategy against LibTorch alone, in this process.
void compare_with_bare_loop(const BenchmarkOptions& options, Report& report);
/// The same with a process for each. Threads that wait for OpenMP work spin as long as the process has no
/// more of them than there are cores, and give up soon otherwise: in one process both programs wait alike,
/// here each as it does for its user.
void compare_with_bare_process(const BenchmarkOptions& options, Report& report);
/// Replicas against threads that do not communicate, in this process.
void compare_with_independent_loops(const BenchmarkOptions& options, Report& report);
/// The same for each bucket cap.
void compare_bucket_caps(const BenchmarkOptions& options, Report& report);
/// Replicas whose optimizer's state, gradients and, of a GPT, parameters are divided among them, against
/// replicas that hold all of it: in this process, and, of a GPT, as workers, which are also compared with
/// PyTorch's ZeRO 1 and FSDP2 (if there is a Python that has them).
void compare_sharding(const BenchmarkOptions& options, Report& report);
/// One replica of a GPT that is cut among all ranks against a replica on each: in this process, and as
/// workers, which are also compared with PyTorch's parallelize_module (if there is a Python that has it).
void compare_tensor(const BenchmarkOptions& options, Report& report);
/// One replica of a GPT whose layers are stages of a pipeline against a replica on each rank: in this
/// process, and as workers, which are also compared with PyTorch's pipelines (if there is a Python that has
/// them) after both have computed the same losses.
void compare_pipelines(const BenchmarkOptions& options, Report& report);
/// One replica that computes each block of the GPT again in backward, against one that keeps the activations.
void compare_recomputation(const BenchmarkOptions& options, Report& report);
/// A peer's job against the same job of ours: one process of ours and of TensorFlow's, of PyTorch's one for
/// each replica. Throws std::runtime_error if the two do not train equally many parameters.
void compare_with_torch(const BenchmarkOptions& options, TorchPeer peer, Report& report);
void compare_with_tensorflow(const BenchmarkOptions& options, Report& report);
/// Replicas in a process each, as workers of a cluster on this machine, against PyTorch's
/// DistributedDataParallel (if there is a Python that has it) and against replicas in one process. On GPUs
/// each process has one.
void compare_workers(const BenchmarkOptions& options, Report& report);
/// Several replicas on the workload's one device against one with the same global batch, in this process.
void compare_with_one_replica(const BenchmarkOptions& options, Report& report);
/// One replica fed from image files against one that trains on the same batch over and over, in this process.
void compare_images_with_one_batch(const BenchmarkOptions& options, Report& report);
/// The cross-device ops against hierarchical_copy: sums of tensors of several sizes, and of the model's
/// gradient buckets, over replicas that have a GPU each or share one. In this process.
void compare_cross_device_ops(const BenchmarkOptions& options, Report& report);
/// How much of the time the GPU has nothing to execute while one warm replica trains, on the images if there
/// are any. LibTorch's profiler stays loaded in this process: nothing is to be timed after it.
void profile_device(const BenchmarkOptions& options, Report& report);
/// The largest resident sets of one replica and of LibTorch alone, and of several replicas and as many
/// threads that do not communicate: these have no gradient buckets. A new process for each measurement.
void compare_memory(const BenchmarkOptions& options, Report& report);
/// Seconds from the start of a process to its first finished step, ours and the peers' in turn.
void measure_starts(const BenchmarkOptions& options, Report& report);

}  // namespace lockstep::benchmarks
