#include "lockstep/apps/train_gpt/training/gpt_optimizer.h"

#include <string>
#include <tuple>
#include <utility>

#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep::apps {

DecayGroups decay_groups(const Gpt& model) {
  DecayGroups groups;
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    const bool is_table = name.starts_with("tokens.") || name.starts_with("positions.");
    const bool is_bias = name.ends_with("bias");  // those of experts are one matrix
    (whole_sizes(item.value()).size() >= 2 && !is_table && !is_bias ? groups.decayed : groups.undecayed)
        .push_back(item.value());
  }
  return groups;
}

std::unique_ptr<torch::optim::Optimizer> make_gpt_optimizer(const GptTrainOptions& options,
                                                            const Gpt& model) {
  const auto with_decay = [&](double decay) {
    return FusedAdamWOptions(options.learning_rate)
        .betas(std::make_tuple(0.9, options.beta2))
        .weight_decay(decay);
  };
  DecayGroups groups = decay_groups(model);
  std::vector<torch::optim::OptimizerParamGroup> with_options;
  with_options.emplace_back(std::move(groups.decayed),
                            std::make_unique<FusedAdamWOptions>(with_decay(options.weight_decay)));
  with_options.emplace_back(std::move(groups.undecayed), std::make_unique<FusedAdamWOptions>(with_decay(0)));
  return std::make_unique<FusedAdamW>(with_options, with_decay(0));
}

}  // namespace lockstep::apps
