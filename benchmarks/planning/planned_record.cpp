// Records and layouts of planned trainings.
#include <ATen/Parallel.h>

#include "lockstep/benchmarks/planning/planned_model.h"
#include "lockstep/benchmarks/planning/planned_training.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/training/planning/module_recorder.h"
#include "lockstep/training/planning/rank_recorders.h"

namespace lockstep::benchmarks {
namespace {

/// Lets this thread's operators use one thread.
class OneThreadGuard {
 public:
  OneThreadGuard() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThreadGuard() { at::set_num_threads(before_); }
  OneThreadGuard(const OneThreadGuard&) = delete;
  OneThreadGuard& operator=(const OneThreadGuard&) = delete;

 private:
  int before_;
};

/// Makes parts blocks of the recorder.
PartWrapper recording(ModuleRecorder& recorder) {
  return [&recorder](const ModelPart& part) {
    return WrappedPart{part.module, [&recorder, name = part.name](const auto& function, const auto& x) {
                         return recorder.call(name, function, x);
                       }};
  };
}

RecordedStep record_of_ranks(const PlannedTraining& training) {
  const int experts = training.shares_experts ? static_cast<int>(training.layout.replicas) : 1;
  const int ranks = experts * training.context * training.tensor;
  MirroredStrategy strategy(
      cpu_devices(ranks),
      {.intra_op_threads = 1,
       .seed = 1,
       .mesh = {{"expert", experts}, {"context", training.context}, {"tensor", training.tensor}}});
  ModuleRecorderOptions options;
  // In how many pieces attention goes around depends on the examples.
  if (training.context > 1) {
    options.fewer_examples = training.layout.examples;
    options.more_examples = training.layout.examples + 1;
  }
  RankRecorders recorders(ranks, options);
  auto models = strategy.scope([&](ReplicaContext& replica) {
    return make_planned_model(training, recording(recorders.of(replica)), &replica, /*has_stages=*/false);
  });
  strategy.run(
      [&](ReplicaContext& replica, std::shared_ptr<torch::nn::Module>& model) {
        recorders.record(
            replica, *model, [&](int64_t examples) { return make_planned_batch(training, examples); },
            [&](const PlannedBatch& batch) {
              return compute_average_loss(replica, planned_losses(training, *model, batch),
                                          {.global_batch_size = batch[0].size(0)});
            });
      },
      models);
  return training.shares_experts ? recorders.mean() : recorders.largest();
}

}  // namespace

int64_t num_ranks(const PlannedTraining& training) {
  return training.layout.replicas * training.layout.pipeline.ranks * training.context * training.tensor;
}

RecordedStep record_of(const PlannedTraining& training) {
  if (training.tensor > 1 || training.context > 1 || training.shares_experts)
    return record_of_ranks(training);
  const OneThreadGuard one_thread;
  ModuleRecorder recorder;
  const auto model = make_planned_model(training, recording(recorder), nullptr, /*has_stages=*/false);
  return recorder.record(
      *model, [&](int64_t examples) { return make_planned_batch(training, examples); },
      [&](const PlannedBatch& batch) { return planned_losses(training, *model, batch).mean(); });
}

TrainingLayout layout_of(const PlannedTraining& training, const RecordedStep& record) {
  TrainingLayout layout = training.layout;
  layout.copies = training.context;
  if (training.uses_processes) layout.replicas_per_process = 1;
  if (training.recomputes) layout.recomputed = record.blocks_named(recomputed_prefix(training.model));
  if (training.model == PlannedModel::kGpt) layout.pipeline.blocks = record.pipeline_blocks("blocks.");
  layout.pipeline.costs = stage_costs(training);
  return layout;
}

}  // namespace lockstep::benchmarks
