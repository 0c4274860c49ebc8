#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt.h"

namespace lockstep::apps {

/// The parameters of a Gpt by whether their weights decay.
struct DecayGroups {
  std::vector<torch::Tensor> decayed;    ///< matrices that tokens' vectors are multiplied with
  std::vector<torch::Tensor> undecayed;  ///< norms, biases and embeddings, a tied head included
};

DecayGroups decay_groups(const Gpt& model);

/// Creates AdamW with weight decay for the first of these groups only.
std::unique_ptr<torch::optim::Optimizer> make_gpt_optimizer(const GptTrainOptions& options, const Gpt& model);

}  // namespace lockstep::apps
