#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/parallel/internal/pass_batches.h"
#include "lockstep/strategies/parallel/internal/split_backward.h"
#include "lockstep/strategies/parallel/internal/stage_gradients.h"
#include "lockstep/strategies/parallel/internal/stage_messages.h"
#include "lockstep/strategies/parallel/pipeline_stages.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"

namespace lockstep {

/// One pass of this rank through a schedule.
class PipelineStages::Work final : public PipelineWork {
 public:
  /// Without a replica, it only goes forward. Without functions, it calls those of the blocks. All that it is
  /// given must outlive it.
  Work(PipelineStages& pipeline, const PipelineSchedule& schedule, const PassBatches& batches,
       const PipelinePass& pass, ReplicaContext* replica, const BlockFunctions* functions = nullptr);

  void forward(int stage, int micro_batch) override;
  void backward(int stage, int micro_batch) override;
  void backward_inputs(int stage, int micro_batch) override;
  void backward_weights(int stage, int micro_batch) override;
  void send_activation(int stage, int micro_batch) override;
  void receive_activation(int stage, int micro_batch) override;
  void send_gradient(int stage, int micro_batch) override;
  void receive_gradient(int stage, int micro_batch) override;

  /// Hands the gradients on that could not be while the schedule ran.
  void finish();

  /// Returns the last stage's result of a batch of a stream. Blocks until that rank has called it.
  torch::Tensor take_result(size_t batch);
  /// Returns the losses or the results of the last stage, of all micro-batches.
  torch::Tensor losses() const { return concatenated(losses_); }
  torch::Tensor outputs() const { return concatenated(outputs_); }

 private:
  /// A stage's forward for a micro-batch, as far as later actions need it.
  struct Kept {
    torch::Tensor input;     ///< a leaf; undefined if backward needs no gradient of it
    torch::Tensor result;    ///< with its history
    torch::Tensor sent;      ///< the result without it, until it is sent
    torch::Tensor gradient;  ///< of the result
    torch::Tensor of_input;  ///< its gradient, until it is sent
    std::optional<SplitBackward> split;
  };

  bool goes_backward() const { return replica_ != nullptr; }
  int num_stages() const { return schedule_.num_stages(); }
  bool is_here(int stage) const;
  Kept& kept(int stage, int micro_batch) { return kept_[{stage, micro_batch}]; }
  template <typename Fn>
  void with_action_in_errors(const char* what, int stage, int micro_batch, const Fn& work) const;
  std::optional<RankRandom> own_random() const;
  void draw_seed();
  void compute(int stage, int micro_batch);
  void end_inputs(int stage, int micro_batch, Kept& kept);
  static torch::Tensor take_gradient(Kept& kept);
  static torch::Tensor concatenated(const std::vector<torch::Tensor>& parts);

  PipelineStages& pipeline_;
  const PipelineSchedule& schedule_;
  const PassBatches& batches_;
  const PipelinePass& pass_;
  ReplicaContext* const replica_;          // null: forward only
  const BlockFunctions* const functions_;  // in place of the blocks'; null: none
  std::optional<ReplicaBackends> ranks_;   // none: this is the only one
  std::optional<StageMessages> messages_;  // the same
  std::optional<StageGradients> gradients_;
  std::optional<int64_t> global_batch_size_;  // if the run's arguments do not tell
  uint64_t seed_ = 0;
  std::optional<at::Generator> generator_;
  std::map<std::pair<int, int>, Kept> kept_;               // by stage and micro-batch
  std::map<std::pair<int, int>, torch::Tensor> incoming_;  // the same
  std::vector<torch::Tensor> losses_;                      // of the micro-batches
  std::vector<torch::Tensor> outputs_;                     // the same
};

}  // namespace lockstep
