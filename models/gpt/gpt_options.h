#pragma once

#include <cstdint>

namespace lockstep {

/// How a Gpt knows the place of a token.
enum class GptPositions {
  kLearned,  ///< a table of vectors, one for each position, as GPT-2
  kRotary,   ///< rotated queries and keys (Su et al., "RoFormer", 2021), as Llama
};

enum class GptNorm {
  kLayerNorm,  ///< with weight and bias, as GPT-2
  kRmsNorm,    ///< with weight (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019), as Llama
};

enum class GptActivation {
  kGelu,      ///< x times the normal distribution function of x
  kGeluTanh,  ///< the approximation with tanh, as GPT-2
  kSwiGlu,    ///< silu(gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020), as Llama
};

/// Changes the frequencies of rotary positions, so that a model reads longer texts than it was trained on.
enum class RotaryScaling {
  kNone,
  kLinear,  ///< divides all frequencies by `factor`
  /// As Llama 3: divides frequencies that turn less than `low_frequency_factor` times over
  /// `original_length` by `factor`, keeps those that turn more than `high_frequency_factor` times, and
  /// interpolates between.
  kLlama3,
};

struct RotaryOptions {
  double theta = 10000;  ///< base of the frequencies theta^(-2i / head_width)
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_length = 8192;
};

/// Options of a Gpt. The defaults make a small model over bytes, with 10.9 million parameters.
struct GptOptions {
  int64_t vocabulary_size = 256;
  int64_t max_length = 256;  ///< largest number of tokens in a sequence
  int64_t num_layers = 6;
  int64_t num_heads = 6;
  /// Heads of keys and values, each shared by as many query heads (Ainslie et al., "GQA", 2023). 0:
  /// num_heads.
  int64_t num_key_value_heads = 0;
  int64_t width = 384;       ///< length of a token's vector between layers
  int64_t head_width = 0;    ///< length of a query, key or value; 0: width / num_heads
  int64_t hidden_width = 0;  ///< length of the hidden vector of a layer's MLP; 0: 4 * width
  GptPositions positions = GptPositions::kLearned;
  RotaryOptions rotary;  ///< for GptPositions::kRotary
  GptNorm norm = GptNorm::kLayerNorm;
  double norm_epsilon = 1e-5;
  GptActivation activation = GptActivation::kGelu;
  bool has_attention_bias = true;
  bool has_mlp_bias = true;
  bool has_tied_head = false;  ///< the last layer has the weights of the token embeddings
  /// MLPs of hidden_width in each layer, of which each token uses the likeliest experts_per_token; see
  /// MixtureOfExperts. 0: one MLP for all tokens.
  int64_t num_experts = 0;
  int64_t experts_per_token = 2;
  int64_t num_shared_experts = 0;  ///< MLPs of hidden_width that all tokens use besides
  /// See MixtureOfExpertsOptions. 0: all tokens get their experts.
  double expert_capacity_factor = 0;
  /// Dropout probabilities, in [0, 1). With attention_dropout, training takes LibTorch's unfused attention,
  /// which needs memory for all pairs of tokens.
  double embedding_dropout = 0;
  double attention_dropout = 0;
  double residual_dropout = 0;
};

/// Model families with published weights that a Gpt computes.
enum class GptFamily {
  kGpt2,   ///< GPT2LMHeadModel of Hugging Face's transformers
  kLlama,  ///< LlamaForCausalLM
};

/// Returns `options` with values in place of the zeros that stand for one. Throws std::invalid_argument
/// naming the option that is out of range.
GptOptions complete_gpt_options(GptOptions options);

/// Returns the number of parameters of a Gpt, without making it. A tied head counts once. Throws as
/// complete_gpt_options().
int64_t num_gpt_parameters(const GptOptions& options);

/// Returns the family that has models with these options. Throws std::invalid_argument naming an option that
/// neither family has. Dropout is not looked at.
GptFamily gpt_family(const GptOptions& options);

}  // namespace lockstep
