#pragma once

#include <string>

#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep::apps {

/// Loads the weights of --init-weights into all replicas: of a folder with config.json, Hugging Face's
/// model.safetensors, and else this model's own. All tensors must fit. Throws CheckpointError naming the file
/// and the first tensor that does not, with both shapes.
LoadReport load_initial_weights(const GptTrainOptions& options, Mirrored<Gpt>& model);

}  // namespace lockstep::apps
