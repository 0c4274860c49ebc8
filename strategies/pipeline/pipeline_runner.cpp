#include "lockstep/strategies/pipeline/pipeline_runner.h"

#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

void do_pipeline_action(PipelineWork& work, const PipelineAction& action) {
  const auto& [op, stage, micro_batch] = action;
  switch (op) {
    case PipelineOp::kForward:
      return work.forward(stage, micro_batch);
    case PipelineOp::kBackward:
      return work.backward(stage, micro_batch);
    case PipelineOp::kBackwardInputs:
      return work.backward_inputs(stage, micro_batch);
    case PipelineOp::kBackwardWeights:
      return work.backward_weights(stage, micro_batch);
    case PipelineOp::kSendActivation:
      return work.send_activation(stage, micro_batch);
    case PipelineOp::kReceiveActivation:
      return work.receive_activation(stage, micro_batch);
    case PipelineOp::kSendGradient:
      return work.send_gradient(stage, micro_batch);
    case PipelineOp::kReceiveGradient:
      return work.receive_gradient(stage, micro_batch);
  }
}

std::vector<TimedPipelineAction> run_pipeline_rank(const PipelineSchedule& schedule, int rank,
                                                   PipelineWork& work,
                                                   std::chrono::steady_clock::time_point start,
                                                   const std::function<void(size_t action)>& before) {
  if (rank < 0 || rank >= schedule.num_ranks()) {
    throw InvalidArgument("[run_pipeline_rank] expected a rank below " +
                          std::to_string(schedule.num_ranks()) + ", but got " + std::to_string(rank));
  }
  const auto now = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<TimedPipelineAction> done;
  for (const auto& action : schedule.actions[static_cast<size_t>(rank)]) {
    if (before) before(done.size());
    done.push_back({action, now(), 0});
    do_pipeline_action(work, action);
    done.back().end = now();
  }
  return done;
}

}  // namespace lockstep
