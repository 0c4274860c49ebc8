#pragma once

#include <cstdint>
#include <string>

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

enum class ProfilerOutput {
  kChromeTrace,  ///< a trace file for chrome://tracing or ui.perfetto.dev
  /// A range for each operator, for a process that runs under Nsight Systems. GPUs only.
  kNvtx,
};

struct ProfilerOptions {
  /// New trace file, in an existing folder. Not used by kNvtx.
  std::string path;
  ProfilerOutput output = ProfilerOutput::kChromeTrace;
  /// Steps to skip first, in which allocation and the choice of algorithms distort times.
  int64_t skip_steps = 3;
  int64_t steps = 10;  ///< steps to profile
};

/// Profiles some steps of a fit with LibTorch's profiler: the operators of every replica's thread and the
/// kernels of GPUs. If the fit ends early, the trace holds the steps so far. Only worker 0 profiles.
///
/// Example:
///
///     auto profiler = std::make_shared<Profiler>(ProfilerOptions{.path = "trace.json"});
///     trainer.fit(batches, {.callbacks = {profiler}});
class Profiler : public Callback {
 public:
  /// Throws InvalidArgument if steps is below 1 or skip_steps negative, if the path of a trace is empty or
  /// already exists, and for kNvtx without CUDA.
  explicit Profiler(const ProfilerOptions& options);
  ~Profiler() override;

  void on_step_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  /// Throws std::system_error naming the trace's path if it cannot be written.
  void on_fit_end(FitState& state) override;

 private:
  void end();

  ProfilerOptions options_;
  int64_t seen_ = 0;
  bool is_on_ = false;
};

}  // namespace lockstep
