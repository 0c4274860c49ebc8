#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/benchmarks/loops/workload.h"
#include "lockstep/benchmarks/scaling/step_model.h"
#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep::benchmarks {

struct ComputeLoopOptions {
  /// Processes that share the machine's cores with this one.
  int num_processes = 1;
  int64_t most_examples = 1;  ///< of a batch
  BucketOptions buckets;
};

/// Computes the steps of one replica of a job, without the exchanges: forward, backward, copying the
/// gradients into the library's buckets as they come, the optimizer. Runs in the calling thread.
class ComputeLoop {
 public:
  ComputeLoop(const Workload& workload, const ComputeLoopOptions& options);
  ~ComputeLoop();
  ComputeLoop(const ComputeLoop&) = delete;
  ComputeLoop& operator=(const ComputeLoop&) = delete;

  struct Times {
    ComputeTimes mean;                 ///< over the steps
    std::vector<double> step_seconds;  ///< of each step
    double copy_seconds = 0;           ///< that backward took for the buckets, which one process has not
  };
  /// Blocks for `steps` steps on batches of `num_examples` images. Before the first call the loop has done
  /// one step, whose order the buckets have.
  Times run(int steps, int64_t num_examples);
  int64_t num_parameters() const;
  /// Tensors among the parameters.
  int64_t num_tensors() const;

 private:
  class Training;
  std::unique_ptr<Training> training_;
};

}  // namespace lockstep::benchmarks
