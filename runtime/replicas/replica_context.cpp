#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {

ReplicaContext::ReplicaContext(ReplicaState& state, GradientHandler& gradients,
                               const ReplicaBackends* collectives, BatchInfo batch,
                               const std::vector<ReplicaBackends>* axes)
    : ReplicaAxis(state, {.name = {}, .index = state.replica_id, .size = state.num_replicas}, collectives),
      state_(state),
      gradients_(gradients),
      batch_(batch) {
  for (size_t i = 0; i < state.axes.size(); ++i)
    axes_.emplace_back(state, state.axes[i], axes == nullptr ? nullptr : &axes->at(i));
}

ReplicaAxis& ReplicaContext::axis(const std::string& name) {
  return axes_[position_in(state_.axes, "axis", name)];
}

}  // namespace lockstep
