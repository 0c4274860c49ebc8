#pragma once

#include <string>
#include <string_view>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

/// Returns the options in the text of a config.json of Hugging Face's transformers, of `model_type` gpt2 or
/// llama. The text need not be trusted. Fields that do not change what the model computes are ignored. Throws
/// std::invalid_argument naming `source` and the field if the text is not such a configuration, or if the
/// field asks for something that a Gpt does not have.
GptOptions parse_gpt_configuration(std::string_view text, const std::string& source = "config.json");

/// Reads a config.json file as above. Throws std::runtime_error naming the file if it cannot be read.
GptOptions read_gpt_configuration(const std::string& path);

/// Returns the text of a config.json with which transformers' AutoModelForCausalLM makes the same model.
/// Throws as gpt_family() does. Llama has no embedding and residual dropout, so that these are left out for
/// it.
std::string gpt_configuration_text(const GptOptions& options);

}  // namespace lockstep
