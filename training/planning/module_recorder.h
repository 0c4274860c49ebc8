#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

class RankAllocations;
class StepLog;

struct ModuleRecorderOptions {
  /// Examples of the two batches that are recorded, from which sizes follow for any other number. Take
  /// numbers that are far apart but quick to compute. Operators may choose other ways for very small batches.
  int64_t fewer_examples = 4;
  int64_t more_examples = 8;
  /// Whether to record the two halves of each block's backward, too, for plans of the schedules zb-h1 and
  /// zb-v. It takes two more passes, in which gradients do not go from block to block.
  bool records_halves = true;
};

/// Records a training step of any module on the CPU, with small real tensors: what memory and which
/// operators forward and backward need.
///
/// Parts of the model that are called by call() are blocks. Plans recompute blocks, and take them for the
/// units of sharded parameters. A block has the parameters whose names begin with its name and a dot.
///
/// Not thread-safe: use it from one thread.
///
/// Example:
///
///     ModuleRecorder recorder;
///     torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
///     const auto record = recorder.record(
///         *model, [](int64_t examples) { return std::vector{torch::rand({examples, 8})}; },
///         [&](const std::vector<torch::Tensor>& batch) { return model->forward(batch[0]).square().mean();
///         });
class ModuleRecorder {
 public:
  using Batch = std::vector<torch::Tensor>;
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;

  explicit ModuleRecorder(const ModuleRecorderOptions& options = {}) : options_(options) {}
  /// Makes the recorder of one of the ranks that compute a model together; see RankRecorders.
  ModuleRecorder(const ModuleRecorderOptions& options, std::shared_ptr<RankAllocations> ranks)
      : options_(options), ranks_(std::move(ranks)) {}

  /// Returns `function(x)`, and notes while a step is recorded that this is the block `name`. A block that is
  /// called within another one is part of that one. To have the parts of a Gpt, a MobileNetV2 or a SimpleCnn
  /// as blocks, make it with
  ///
  ///     [&](const ModelPart& part) {
  ///       return WrappedPart{part.module, [&recorder, name = part.name](const auto& function, const auto& x)
  ///       {
  ///         return recorder.call(name, function, x);
  ///       }};
  ///     }
  torch::Tensor call(const std::string& name, const Function& function, const torch::Tensor& x);

  /// Records forward and backward of `loss_of`, which returns a loss of one element for tensors that
  /// `batch_of` has made for a number of examples. Runs four such steps, in the thread's autocast mode and
  /// with its number of threads, which operators need memory for. Gradients of `model` are dropped; buffers
  /// are as before afterwards. Random numbers are drawn.
  ///
  /// Throws InvalidArgument for numbers of examples below 1 or not in their order, parameters that are not on
  /// the CPU, a loss without a gradient or of more than one element, another recording in this thread, and if
  /// the step calls other operators or allocates other tensors for more examples.
  RecordedStep record(torch::nn::Module& model, const std::function<Batch(int64_t examples)>& batch_of,
                      const std::function<torch::Tensor(const Batch& batch)>& loss_of);

 private:
  struct HalvesLog;

  torch::Tensor call_in_halves(const std::string& name, const Function& function, const torch::Tensor& x);
  void record_halves(RecordedStep& record, const torch::nn::Module& model, const std::vector<Batch>& batches,
                     const std::function<torch::Tensor(const Batch& batch)>& loss_of);

  ModuleRecorderOptions options_;
  std::shared_ptr<RankAllocations> ranks_;
  StepLog* log_ = nullptr;       // of the step that is being recorded
  HalvesLog* halves_ = nullptr;  // of the pass whose calls are recorded in halves
};

}  // namespace lockstep
