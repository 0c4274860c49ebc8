#include "lockstep/training/metrics/metric.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void check_alike(StateMerge merge, const MetricState& first, const MetricState& other) {
  bool alike = first.size() == other.size();
  for (size_t i = 0; alike && i < first.size(); ++i) {
    alike = merge == StateMerge::kSum
                ? first[i].sizes() == other[i].sizes()
                : first[i].dim() > 0 && first[i].sizes().slice(1) == other[i].sizes().slice(1);
  }
  if (!alike) throw InvalidArgument("[metric] expected states of the same shapes on every replica");
}

/// Packs all tensors of a state into one, so that workers exchange them in one step.
torch::Tensor packed(const MetricState& state) {
  std::vector<torch::Tensor> flat;
  flat.reserve(state.size());
  for (const auto& tensor : state) flat.push_back(tensor.reshape({-1}));
  return torch::cat(flat);
}

MetricState unpacked(const torch::Tensor& values, const MetricState& shapes) {
  MetricState state;
  int64_t begin = 0;
  for (const auto& like : shapes) {
    state.push_back(values.narrow(0, begin, like.numel()).reshape(like.sizes()));
    begin += like.numel();
  }
  return state;
}

}  // namespace

void clear_state(torch::Tensor& state) {
  const torch::NoGradGuard no_grad;
  if (!state.defined()) return;
  if (state.is_inference()) {
    state.reset();  // made under InferenceMode, and can be changed only there
  } else {
    state.zero_();
  }
}

MetricState merge_states(StateMerge merge, const std::vector<MetricState>& states) {
  const torch::NoGradGuard no_grad;
  MetricState merged;
  for (const auto& tensor : states.front()) {
    merged.push_back(merge == StateMerge::kSum ? tensor.to(torch::kCPU, torch::kDouble)
                                               : tensor.to(torch::kCPU));
  }
  for (size_t replica = 1; replica < states.size(); ++replica) {
    check_alike(merge, states.front(), states[replica]);
    for (size_t i = 0; i < merged.size(); ++i) {
      const auto other = states[replica][i].to(torch::kCPU);
      merged[i] = merge == StateMerge::kSum ? merged[i] + other : torch::cat({merged[i], other});
    }
  }
  return merged;
}

MetricState merge_states(Strategy& strategy, StateMerge merge, const PerReplica<MetricState>& states) {
  const auto& local = states.local_values();
  if (local.front().empty()) return merge_states(merge, local);
  if (strategy.num_local_replicas() == strategy.num_ranks()) {
    std::vector<MetricState> of_replicas;
    for (size_t at = 0; at < local.size(); ++at)
      if (strategy.is_first_of_replica(at)) of_replicas.push_back(local[at]);
    return merge_states(merge, of_replicas);
  }
  const torch::NoGradGuard no_grad;
  const auto on_devices = [&](const auto& tensor_of) {
    std::vector<torch::Tensor> tensors;
    for (size_t replica = 0; replica < local.size(); ++replica) {
      tensors.push_back(tensor_of(local[replica]).to((*states.devices())[replica].torch_device()));
    }
    return PerReplica(std::move(tensors), states.devices());
  };
  if (merge == StateMerge::kSum) {
    const auto sum = strategy.reduce(ReduceOp::kSum, on_devices([](const MetricState& state) {
                                       return packed(state).to(torch::kDouble);
                                     }));
    return unpacked(sum.cpu(), local.front());
  }
  MetricState merged;
  for (size_t i = 0; i < local.front().size(); ++i) {
    merged.push_back(strategy.gather(on_devices([i](const MetricState& state) { return state[i]; })).cpu());
  }
  return merged;
}

}  // namespace lockstep
