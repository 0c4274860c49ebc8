#include "lockstep/apps/shared/planning/gpt_parts.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "lockstep/models/gpt/gpt_flops.h"

namespace lockstep::apps {
namespace {

/// Operators of a part in forward and backward, as the recorder counts them.
struct OperatorCounts {
  double forward = 0;
  double backward = 0;
};

/// The sizes of a Gpt, and what its parts are made of. A token's numbers times their bytes are those of an
/// example with `tokens_`.
class GptParts {
 public:
  GptParts(const GptOptions& options, int64_t length, PlannedNumbers numbers)
      : options_(options),
        is_llama_norm_(options.norm == GptNorm::kRmsNorm),
        is_gated_(options.activation == GptActivation::kSwiGlu),
        is_rotary_(options.positions == GptPositions::kRotary),
        is_mixed_(numbers == PlannedNumbers::kMixed),
        tokens_(static_cast<double>(length)),
        wide_(static_cast<double>(parameter_bytes(numbers))),
        narrow_(is_mixed_ ? 2 : wide_),
        width_(static_cast<double>(options.width)),
        heads_(static_cast<double>(options.num_heads)),
        queries_(static_cast<double>(options.num_heads * options.head_width)),
        keys_(static_cast<double>(options.num_key_value_heads * options.head_width)),
        hidden_(static_cast<double>(options.hidden_width)),
        vocabulary_(static_cast<double>(options.vocabulary_size)) {}

  PlannedPart embeddings() const {
    PlannedPart part{.name = "embeddings"};
    part.elements.cut = vocabulary_ * width_;
    part.largest_tensor.cut = vocabulary_ * width_;
    part.input.whole = 0;  // tokens, which are the input of the model
    part.forward_extra.between = tokens_ * wide_ * width_;
    part.backward_extra.between = tokens_ * wide_ * width_;
    part.forward.bytes.between = tokens_ * wide_ * 2 * width_;
    part.backward.bytes.between = tokens_ * wide_ * 2 * width_;
    part.forward.operators = part.backward.operators = 1;
    if (is_rotary_) {
      // Cosines and sines, which all blocks use.
      part.fixed_saved.whole = 2 * tokens_ * wide_ * static_cast<double>(options_.head_width);
    } else {
      part.elements.whole = static_cast<double>(options_.max_length) * width_;
      part.forward_extra.between *= 2;
      part.forward.bytes.between += tokens_ * wide_ * 3 * width_;
      part.forward.operators += 2;
    }
    part.summed_forward = tokens_ * wide_ * width_;
    return part;
  }

  PlannedPart block() const {
    PlannedPart part{.name = "block", .is_recomputed = true};
    add_attention(part);
    if (options_.num_experts > 0) {
      add_experts(part);
    } else {
      add_mlp(part);
    }
    // The residual stream: the block's input, and the features after attention.
    part.input.between = tokens_ * wide_ * width_;
    part.saved.between += 2 * tokens_ * wide_ * width_;
    part.forward.bytes.between += tokens_ * wide_ * 6 * width_;
    part.backward.bytes.between += tokens_ * wide_ * 6 * width_;
    add_norms(part, 2);
    // A sublayer's result, and its sum with the residual stream.
    part.forward_extra.whole += tokens_ * narrow_ * width_;
    part.forward_extra.between += tokens_ * wide_ * width_;
    part.backward_extra.between += tokens_ * wide_ * width_;  // the gradient of the block's result
    part.summed_forward = 2 * tokens_ * narrow_ * width_;
    part.summed_backward = 2 * tokens_ * narrow_ * width_;
    part.sums = 2;
    const auto counts = is_llama_norm_ ? OperatorCounts{27, 52} : OperatorCounts{10, 21};
    part.forward.operators += counts.forward;
    part.backward.operators += counts.backward;
    add_dropout(part);
    return part;
  }

  /// The last norm, the head and the cross entropy.
  PlannedPart head() const {
    PlannedPart part{.name = "head", .has_late_gradients = true};
    part.elements.cut = vocabulary_ * width_;
    part.largest_tensor.cut = vocabulary_ * width_;
    part.input.between = tokens_ * wide_ * width_;
    part.saved.between = tokens_ * wide_ * width_;
    add_norms(part, 1);
    // The logarithms of the probabilities are kept, in a wide dtype.
    const double logits = tokens_ * vocabulary_;
    part.saved.cut += logits * wide_;
    part.forward_extra.cut = logits * (is_mixed_ ? wide_ + narrow_ : wide_);
    part.forward_extra.whole = tokens_ * wide_;
    part.backward_extra.cut = logits * 2 * wide_;
    part.split_extra.cut = logits * narrow_;
    add_product(part, vocabulary_ * width_);
    part.forward.bytes.cut += logits * 3 * wide_;
    part.backward.bytes.cut += logits * 5 * wide_;
    part.forward.operators += 5;
    part.backward.operators += 8;
    part.summed_backward = tokens_ * narrow_ * width_;
    return part;
  }

 private:
  /// Adds a matrix product whose weights the ranks along "tensor" have in parts.
  void add_product(PlannedPart& part, double weights, double times = 1) const {
    part.forward.flops.cut += times * tokens_ * 2 * weights;
    part.backward.flops.cut += times * tokens_ * 4 * weights;
    if (!is_mixed_) return;
    // The weights are read, cast, and kept for backward, whose gradients are cast back.
    part.fixed_saved.cut += narrow_ * weights;
    part.forward.fixed_bytes.cut += (wide_ + narrow_) * weights;
    part.backward.fixed_bytes.cut += (wide_ + narrow_) * weights;
  }

  void add_parameters(PlannedPart& part, double weights, double cut_bias, double whole_bias) const {
    part.elements.cut += weights + cut_bias;
    part.elements.whole += whole_bias;
    part.largest_tensor.cut = std::max(part.largest_tensor.cut, weights);
  }

  void add_attention(PlannedPart& part) const {
    const double projected = queries_ + 2 * keys_;
    const double bias = options_.has_attention_bias ? 1 : 0;
    add_parameters(part, projected * width_, bias * projected, 0);
    add_parameters(part, queries_ * width_, 0, bias * width_);
    part.vector_sums += bias;
    add_product(part, projected * width_);
    add_product(part, queries_ * width_);
    // Queries with keys, and weights with values; backward has five such products.
    const double attended = tokens_ * tokens_ * queries_;
    part.forward.flops.cut += 4 * attended;
    part.backward.flops.cut += 10 * attended;
    // A token attends to those before it, and fused kernels skip blocks of tokens that come later.
    constexpr double kBlock = 64;
    const double skipped = std::max(0.0, (tokens_ - kBlock) / (2 * tokens_));
    if (options_.attention_dropout == 0) {
      part.forward.skipped_flops.cut += skipped * 4 * attended;
      part.backward.skipped_flops.cut += skipped * 10 * attended;
    }
    part.saved.cut += tokens_ * (narrow_ * (projected + queries_) + wide_ * heads_);
    part.split_extra.cut += tokens_ * narrow_ * projected;
    part.split_extra.between += tokens_ * narrow_ * width_;
    part.backward.bytes.cut += tokens_ * narrow_ * (2 * queries_ + 4 * keys_);  // joined gradients
    part.keys_and_values = tokens_ * narrow_ * 2 * keys_;
    if (!is_rotary_) return;
    part.saved.cut += tokens_ * narrow_ * (queries_ + keys_);
    part.forward.bytes.cut += tokens_ * narrow_ * 7 * (queries_ + keys_);
    part.backward.bytes.cut += tokens_ * narrow_ * 11 * (queries_ + keys_);
  }

  void add_mlp(PlannedPart& part) const {
    const double matrices = is_gated_ ? 3 : 2;
    const double bias = options_.has_mlp_bias ? 1 : 0;
    for (int i = 1; i < static_cast<int>(matrices); ++i)
      add_parameters(part, hidden_ * width_, bias * hidden_, 0);
    add_parameters(part, hidden_ * width_, 0, bias * width_);
    part.vector_sums += bias;
    for (int i = 0; i < static_cast<int>(matrices); ++i) add_product(part, hidden_ * width_);
    const double hidden = tokens_ * narrow_ * hidden_;
    part.saved.cut += (is_gated_ ? 4 : 2) * hidden;
    part.forward.bytes.cut += (is_gated_ ? 5 : 2) * hidden;
    part.backward.bytes.cut += (is_gated_ ? 9 : 3) * hidden;
    if (is_gated_) part.backward.bytes.whole += tokens_ * narrow_ * 3 * width_;  // both gradients are added
    part.backward_extra.cut += (is_gated_ ? 2 : 1) * hidden;
    part.split_extra.cut += (is_gated_ ? 2 : 1) * hidden;
    part.split_extra.between += tokens_ * narrow_ * width_;
  }

  /// Experts see whole sequences, and are the same on all ranks along "tensor".
  void add_experts(PlannedPart& part) const {
    const double matrices = is_gated_ ? 3 : 2;
    const double bias = options_.has_mlp_bias ? (matrices - 1) * hidden_ + width_ : 0;
    const auto experts = static_cast<double>(options_.num_experts);
    const auto used = static_cast<double>(options_.experts_per_token + options_.num_shared_experts);
    const double expert = matrices * hidden_ * width_ + bias;
    part.expert_elements = experts * expert;
    part.elements.whole += experts * width_ + static_cast<double>(options_.num_shared_experts) * expert;
    PlannedPart products;
    add_product(products, matrices * hidden_ * width_, used);
    add_product(products, experts * width_);
    part.forward.flops.whole += products.forward.flops.cut;
    part.backward.flops.whole += products.backward.flops.cut;
    const double numbers = used * ((is_gated_ ? 4 : 2) * hidden_ + 2 * width_);
    part.saved.whole += tokens_ * (narrow_ * numbers + 3 * wide_ * experts);
    part.forward.bytes.whole += tokens_ * narrow_ * used * ((is_gated_ ? 5 : 2) * hidden_ + 4 * width_);
    part.backward.bytes.whole += tokens_ * narrow_ * used * ((is_gated_ ? 9 : 3) * hidden_ + 6 * width_);
    part.backward_extra.whole += tokens_ * narrow_ * used * ((is_gated_ ? 2 : 1) * hidden_);
    part.split_extra.whole += tokens_ * narrow_ * used * ((is_gated_ ? 2 : 1) * hidden_ + width_);
    part.routed = tokens_ * narrow_ * static_cast<double>(options_.experts_per_token) * width_;
    part.forward.operators += 30;
    part.backward.operators += 40;
  }

  /// The results of norms are the inputs of cut layers, which need whole sequences.
  void add_norms(PlannedPart& part, double norms) const {
    const double biases = is_llama_norm_ ? 1 : 2;
    part.elements.whole += norms * biases * width_;
    part.vector_sums += norms;
    part.vector_elements = width_;
    part.saved.whole += norms * tokens_ * narrow_ * width_;
    part.saved.between += norms * tokens_ * wide_ * (is_llama_norm_ ? width_ + 1 : 2);
    part.forward.bytes.between += norms * tokens_ * wide_ * (is_llama_norm_ ? 6 : 2) * width_;
    part.backward.bytes.between += norms * tokens_ * wide_ * (is_llama_norm_ ? 19 : 3) * width_;
  }

  void add_dropout(PlannedPart& part) const {
    // A mask of a byte for each number; attention keeps all weights, and its products are no fused ones.
    if (options_.residual_dropout > 0) part.saved.between += 2 * tokens_ * width_;
    if (options_.attention_dropout > 0) part.saved.cut += tokens_ * tokens_ * heads_ * (2 * narrow_ + 1);
  }

  const GptOptions& options_;
  bool is_llama_norm_, is_gated_, is_rotary_, is_mixed_;
  double tokens_;
  double wide_, narrow_;  // bytes of parameters and the residual stream, and of matrix products
  double width_, heads_, queries_, keys_, hidden_, vocabulary_;
};

}  // namespace

PlannedModel planned_gpt(const GptOptions& given, int64_t length, PlannedNumbers numbers) {
  if (length < 1)
    throw std::invalid_argument("[planned_gpt] expected a length of 1 or more, but got " +
                                std::to_string(length));
  const GptOptions options = complete_gpt_options(given);
  const GptParts parts(options, length, numbers);
  constexpr double kTokenBytes = 8;
  PlannedModel model{.kinds = {parts.embeddings(), parts.block(), parts.head()},
                     .input_bytes = 2 * kTokenBytes * static_cast<double>(length),
                     .sequence_length = length,
                     .experts = options.num_experts};
  model.parts.push_back(0);
  model.parts.insert(model.parts.end(), static_cast<size_t>(options.num_layers), 1);
  model.parts.push_back(2);
  const auto costs = gpt_block_flops(options, length);  // by which train_gpt cuts stages
  for (size_t kind = 0; kind < model.kinds.size(); ++kind)
    model.kinds[kind].stage_cost = kind == 0 ? costs.front() : kind == 1 ? costs[1] : costs.back();
  if (options.has_tied_head)
    model.shared_elements.cut = static_cast<double>(options.vocabulary_size * options.width);
  model.cut_sizes = {options.num_heads, options.num_key_value_heads, options.vocabulary_size};
  if (options.num_experts == 0) model.cut_sizes.push_back(options.hidden_width);
  return model;
}

}  // namespace lockstep::apps
