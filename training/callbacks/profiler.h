#pragma once

#include <cstdint>
#include <string>

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

enum class ProfilerOutput {
  kChromeTrace,  ///< a file for chrome://tracing or ui.perfetto.dev
  kNvtx,         ///< a range of each operator for Nsight Systems, which has to watch the process; GPUs only
};

struct ProfilerOptions {
  std::string path;  ///< of the trace, in a folder that is there; nothing is overwritten
  ProfilerOutput output = ProfilerOutput::kChromeTrace;
  int64_t skip_steps = 3;  ///< steps before it begins: the first ones allocate and choose algorithms
  int64_t steps = 10;      ///< that are profiled
};

/// Profiles some steps of a fit by LibTorch's profiler: the operators of every replica's thread, and the
/// kernels of GPUs. A fit that ends earlier writes what there is. Of several workers worker 0 alone does.
class Profiler : public Callback {
 public:
  /// Throws InvalidArgument for less than one step, a negative skip_steps, no path of a trace or one that is
  /// there already, and for kNvtx without CUDA.
  explicit Profiler(const ProfilerOptions& options);
  ~Profiler() override;

  void on_step_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  /// Throws std::system_error naming the trace's path where it cannot be written.
  void on_fit_end(FitState& state) override;

 private:
  void end();

  ProfilerOptions options_;
  int64_t seen_ = 0;
  bool is_on_ = false;
};

}  // namespace lockstep
