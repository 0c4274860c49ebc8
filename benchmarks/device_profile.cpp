#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "lockstep/benchmarks/chrome_trace.h"
#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/loops/strategy_loop.h"
#include "lockstep/benchmarks/loops/training_loop.h"

namespace lockstep::benchmarks {
namespace {

/// A file that is removed along with this object.
class TemporaryFile {
 public:
  TemporaryFile()
      : path_(std::filesystem::temp_directory_path() / c10::str("speed_benchmark_", getpid(), ".json")) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Traces only the GPU: recording the host's operators as well would slow down the host and leave the GPU
/// without work.
DeviceActivity trace(TrainingLoop& loop, int steps, int device) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities{profiler::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  loop.run(steps);
  const TemporaryFile file;
  profiler::disableProfiler()->save(file.path());
  std::ifstream stream(file.path());
  return read_chrome_trace(stream, device);
}

}  // namespace

void profile_device(const BenchmarkOptions& options, Report& report) {
  if (options.workload.gpus.empty()) {
    report.add_not_measured("profile", "no GPU");
    return;
  }
  Workload workload = options.workload;
  workload.images = options.images;
  const auto loop = make_strategy_loop(workload, {.num_replicas = 1});
  loop->run(options.warm_up_steps);
  const int steps = options.steps * kStepsOfInput;
  const auto activity = trace(*loop, steps, device_of(workload).index());
  report.add_profile(
      workload.images.empty() ? "1 replica, one random batch" : "1 replica, images out of files", steps,
      measure_device_use(activity));
}

}  // namespace lockstep::benchmarks
