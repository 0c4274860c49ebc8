#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt.h"

namespace lockstep {

/// Named tensors, as NamedTensors of the formats.
using GptWeights = std::vector<std::pair<std::string, torch::Tensor>>;

/// Returns tensors of a Hugging Face file, such as load_safetensors() reads, under the names and with the
/// shapes of a Gpt with these options: for load_state_dict(), which also takes the models of all replicas.
///
/// The file may be of GPT2LMHeadModel, of GPT2Model, whose names go without `transformer.`, or of
/// LlamaForCausalLM. Llama's rotary halves are as in Hugging Face's files. A tied head need not be in the
/// file, and if it is, must equal the token embeddings. Masks and frequencies that earlier versions saved are
/// left out.
///
/// `source` is the origin of the tensors, for error messages. Throws std::invalid_argument naming the first
/// tensor that is missing, unexpected, or of another shape, with both shapes.
GptWeights gpt_weights_from_file(const GptOptions& options, const GptWeights& tensors,
                                 const std::string& source = "weights");

/// Copies tensors of a Hugging Face file into the model. Throws as above and leaves the model unchanged then.
///
///     Gpt model(read_gpt_configuration("gpt2/config.json"));
///     load_gpt_weights(model, load_weights("gpt2/model.safetensors"));
void load_gpt_weights(Gpt& model, const GptWeights& tensors, const std::string& source = "weights");

/// Returns the model's weights under the names of its family's files, for save_weights() and for
/// `from_pretrained()` of transformers. A tied head is left out, as there. Tensors share memory with the
/// model where they can. Throws std::invalid_argument if neither family has such a model; see gpt_family().
GptWeights gpt_weights_for_file(const Gpt& model);

}  // namespace lockstep
