#include "lockstep/training/trainer/trainer_step.h"

namespace lockstep::detail {

StepOutputs with_whole_losses(ReplicaContext& replica, const StepOutputs& outputs) {
  const auto cuts_sequences = [](const AxisPosition& axis) {
    return axis.role == AxisRole::kContext && axis.size > 1;
  };
  const auto& axes = replica.axes();
  if (std::none_of(axes.begin(), axes.end(), cuts_sequences)) return outputs;
  StepOutputs whole = outputs;
  const auto losses = outputs.losses.detach();
  // The ranks' numbers of tokens may differ.
  whole.losses = sum_over_contexts(replica, losses.dim() > 1 ? losses.flatten(1).sum(1) : losses);
  return whole;
}

}  // namespace lockstep::detail
