#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Where a tensor of a Gpt is in a file of its family.
struct WeightPlace {
  std::string own_name;
  std::vector<FileTensor> parts;  ///< their rows follow each other in the Gpt's tensor
  bool is_transposed = false;     ///< the file has inputs before outputs, as GPT-2's Conv1D
};

/// Returns a place for each parameter of a Gpt, in the order of its parameters. `options` are complete. A
/// tied head has none. GPT-2's names begin with `transformer.`, but for the head's.
std::vector<WeightPlace> weight_places(const GptOptions& options, GptFamily family);

/// Whether a file of this family may hold a tensor that is no weight: masks of GPT-2's attention, and the
/// frequencies of Llama's rotary positions, which earlier versions of transformers saved.
bool is_saved_constant(const std::string& name, GptFamily family);

/// The names of the token embeddings and of the head in a file.
std::string tokens_name(GptFamily family);
inline constexpr const char* kHeadName = "lm_head.weight";
/// Before the names in files of GPT2LMHeadModel; files of GPT2Model go without.
inline constexpr const char* kGpt2Prefix = "transformer.";

}  // namespace lockstep
