#pragma once

namespace lockstep {

/// Sets, while it lives, whether cuDNN measures its convolution algorithms the first time that it sees a
/// shape and keeps the fastest. If not, which is LibTorch's default, cuDNN chooses by rules of its own. The
/// setting is LibTorch's and holds for the whole process; it does nothing on a CPU.
///
/// Measuring takes time for each new shape, so it pays if shapes recur. The fastest algorithm may differ
/// between runs and between GPUs, and results with it, within rounding. Do not enable it for several GPUs in
/// one process: measuring allocates memory, which may deadlock with a collective of NCCL that waits for this
/// GPU.
///
/// Make and destroy it while no replica runs.
///
/// Example:
///
///     const CudnnBenchmarkGuard benchmark(/*enabled=*/true);
///     strategy.run(train_step, model, optimizer, batch);
class CudnnBenchmarkGuard {
 public:
  explicit CudnnBenchmarkGuard(bool enabled);
  ~CudnnBenchmarkGuard();
  CudnnBenchmarkGuard(const CudnnBenchmarkGuard&) = delete;
  CudnnBenchmarkGuard& operator=(const CudnnBenchmarkGuard&) = delete;

 private:
  const bool before_;
  const bool emptied_cache_before_;
};

}  // namespace lockstep
