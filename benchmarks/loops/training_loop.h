#pragma once

#include <torch/data/example.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "lockstep/benchmarks/loops/workload.h"
#include "lockstep/benchmarks/loops/workload_model.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep::benchmarks {

/// One way to train the workload in this process.
class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;
  /// Blocks until all of its threads, and their device, have done `steps` steps.
  virtual void run(int steps) = 0;
  /// Trainable ones, of one replica.
  virtual int64_t num_parameters() const = 0;
  /// Returns the loss of the last step. Throws std::invalid_argument if no thread of this process has all of
  /// it.
  virtual double last_loss();

  double seconds_for(int steps);
};

/// LibTorch alone: the model, the optimizer and the batch, in the calling thread with all cores.
std::unique_ptr<TrainingLoop> make_bare_loop(const Workload& workload);

/// `num_threads` bare loops that know nothing of each other, each with its share of the batch and of the
/// cores: what replicas would do if communication were free.
std::unique_ptr<TrainingLoop> make_independent_loops(const Workload& workload, int num_threads);

/// Parts that all loops share.
FusedAdamW make_optimizer(const Workload& workload, const torch::nn::Module& model);
/// The CPU, or the first GPU.
torch::Device device_of(const Workload& workload);
/// On `device`.
torch::data::Example<> random_batch(const Workload& workload, int64_t num_examples,
                                    const torch::Device& device = torch::kCPU);
/// Returns the type that forward and loss are cast to.
torch::ScalarType dtype_of(const Workload& workload);
/// Blocks until these devices have done all that they were given.
void synchronize(const std::vector<LogicalDevice>& devices);
/// Counts whole parameters where the module has shards of them.
int64_t count_parameters(const torch::nn::Module& module);

}  // namespace lockstep::benchmarks
