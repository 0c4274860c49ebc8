#pragma once

#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

/// Returns the options of a published model: the sizes, positions, norms and dropout of its config.json. Two
/// names stand for small models of no published weights: `bytes` for the defaults of GptOptions, and `small`
/// for a Llama of 2 layers with the vocabulary of GeneratedLanguage's defaults, which a CPU trains to within
/// 0.05 nats of that language's entropy in minutes. Throws std::invalid_argument listing gpt_preset_names()
/// for other names.
///
///     GptOptions options = gpt_preset("gpt2");
///     options.attention_dropout = 0;  // 0.1 when OpenAI trained it
GptOptions gpt_preset(const std::string& name);

/// Returns `bytes`, `small`, `gpt2`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`, `smollm2-135m`,
/// `tinyllama-1.1b`, `llama-2-7b`, `llama-3.1-8b` and `llama-3.2-1b`.
std::vector<std::string> gpt_preset_names();

}  // namespace lockstep
