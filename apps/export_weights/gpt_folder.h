#pragma once

#include <string>

#include "lockstep/training/formats/named_tensors.h"

namespace lockstep::apps {

/// Writes config.json and model.safetensors for Hugging Face's transformers into a folder, which is created
/// with its parents: a language model of the configuration in the file `model`, with `weights` under the
/// names of a Gpt, in their dtype. `source` is the file of the weights, for messages. Returns the tensors
/// that were written.
///
/// Throws CheckpointError if the file `model` is no configuration of GPT-2 or Llama, or if the weights do not
/// fit it, naming the first tensor that does not with both shapes; nothing is written then. Throws
/// std::system_error naming the file that cannot be written.
NamedTensors write_gpt_folder(const std::string& folder, const std::string& model,
                              const NamedTensors& weights, const std::string& source);

}  // namespace lockstep::apps
