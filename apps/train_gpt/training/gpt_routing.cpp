#include "lockstep/apps/train_gpt/training/gpt_routing.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"

namespace lockstep::apps {
namespace {

/// Returns what all replicas have counted in all of their layers, int64 [2, layers, experts]: choices, and
/// those that were dropped. Ranks along the axis `tokens`, if there is one, have counted different tokens.
torch::Tensor counts_of_all(ReplicaContext& replica, Gpt& model, const std::string& tokens) {
  std::vector<torch::Tensor> loads, dropped;
  for (auto& of_layer : model->routing_statistics(/*reset=*/true)) {
    loads.push_back(of_layer.load);
    dropped.push_back(of_layer.dropped);
  }
  auto counts = torch::stack({torch::stack(loads), torch::stack(dropped)}).to(replica.device());
  if (model->stages() != nullptr) counts = replica.axis(kPipelineAxis).all_reduce(ReduceOp::kSum, counts);
  if (!tokens.empty()) counts = replica.axis(tokens).all_reduce(ReduceOp::kSum, counts);
  return replica.all_reduce(ReduceOp::kSum, counts).cpu();
}

}  // namespace

void GptRouting::on_epoch_begin(FitState& state) {
  state.strategy().run([](ReplicaContext&, Gpt& model) { model->routing_statistics(/*reset=*/true); },
                       model_);
}

void GptRouting::on_epoch_end(FitState& state) {
  const auto count = [tokens = axis_of_tokens(state.strategy().mesh())](ReplicaContext& replica, Gpt& model) {
    return counts_of_all(replica, model, tokens);
  };
  const auto counts = state.strategy().run(count, model_)[0].to(torch::kDouble);
  const auto choices = counts[0];
  const int64_t layers = choices.size(0);
  const int64_t experts = choices.size(1);
  const auto total = choices.sum();
  if (total.item<double>() == 0) return;  // an epoch without steps
  const auto relative = (choices * static_cast<double>(layers * experts) / total).contiguous();
  state.logs.set("largest_expert_load", relative.amax(1).mean().item<double>());
  state.logs.set("dropped_tokens", (counts[1].sum() / total).item<double>());
  const auto* first = relative.const_data_ptr<double>();
  receive_({.when = c10::str("Steps up to ", state.global_step),
            .num_experts = experts,
            .loads = {first, first + relative.numel()}});
}

}  // namespace lockstep::apps
