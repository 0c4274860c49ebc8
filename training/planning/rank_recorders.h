#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/training/planning/module_recorder.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Recorders of the ranks of a model that is cut along axes of a mesh, such as a tensor, context or expert
/// axis: each rank records its part of one step, in a run of a strategy whose ranks are all in this process.
/// A rank's record has the parameters and activations of that rank, and what its messages need. Plan with it
/// a layout whose mesh has these axes in these sizes.
///
/// Example:
///
///     MirroredStrategy strategy(cpu_devices(2), {.mesh = {{"tensor", 2}}});
///     RankRecorders recorders(2);
///     auto models = strategy.scope([&](ReplicaContext& replica) {
///       return Gpt(options, replica.axis("tensor"), {}, [&](const ModelPart& part) {
///         return WrappedPart{part.module, [&, name = part.name](const auto& function, const auto& x) {
///                              return recorders.of(replica).call(name, function, x);
///                            }};
///       });
///     });
///     strategy.run([&](ReplicaContext& replica, Gpt& model) {
///       recorders.record(replica, *model, batch_of, loss_of);
///     }, models);
///     const RecordedStep record = recorders.largest();
class RankRecorders {
 public:
  /// Makes recorders of this many ranks.
  explicit RankRecorders(int num_ranks, const ModuleRecorderOptions& options = {});
  ~RankRecorders();
  RankRecorders(const RankRecorders&) = delete;
  RankRecorders& operator=(const RankRecorders&) = delete;

  /// Returns the recorder of a rank, for its calls of blocks. Threads may use those of different ranks at the
  /// same time.
  ModuleRecorder& of(const ReplicaContext& replica);
  /// Records the rank's step: see ModuleRecorder::record(). All ranks that communicate in it call this.
  void record(const ReplicaContext& replica, torch::nn::Module& model,
              const std::function<ModuleRecorder::Batch(int64_t examples)>& batch_of,
              const std::function<torch::Tensor(const ModuleRecorder::Batch& batch)>& loss_of);

  /// Returns the ranks' records.
  const std::vector<RecordedStep>& records() const { return records_; }
  /// Returns the record of the rank that needs the most memory.
  const RecordedStep& largest() const;
  /// Returns the record of the first rank, with the means of the ranks' sizes: tokens are then divided
  /// equally among experts. Throws InvalidArgument if the ranks did not allocate the same number of tensors.
  RecordedStep mean() const;

 private:
  std::vector<std::unique_ptr<ModuleRecorder>> recorders_;
  std::vector<RecordedStep> records_;
};

}  // namespace lockstep
