#include "lockstep/datasets/tokens/generated_text.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {
namespace {

GeneratedTextOptions checked_text_options(const GeneratedTextOptions& options) {
  if (options.count < 0)
    throw std::invalid_argument("[GeneratedText] expected a count of 0 or more, but got " +
                                std::to_string(options.count));
  if (options.sequence_length < 1)
    throw std::invalid_argument("[GeneratedText] expected a sequence length of 1 or more, but got " +
                                std::to_string(options.sequence_length));
  return options;
}

}  // namespace

GeneratedText::GeneratedText(const GeneratedTextOptions& options)
    : options_(checked_text_options(options)), language_(options.language) {}

torch::data::Example<> GeneratedText::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, *size(), "GeneratedText");
  const std::vector<int64_t> shape{static_cast<int64_t>(indices.size()), options_.sequence_length};
  at::Tensor data = at::empty(shape, at::kLong);
  at::Tensor target = at::empty(shape, at::kLong);
  auto* input = data.mutable_data_ptr<int64_t>();
  auto* output = target.mutable_data_ptr<int64_t>();
  std::vector<uint32_t> tokens(static_cast<size_t>(options_.sequence_length) + 1);
  for (const size_t index : indices) {
    language_.draw({.seed = options_.seed, .index = index}, tokens);
    input = std::copy(tokens.begin(), tokens.end() - 1, input);
    output = std::copy(tokens.begin() + 1, tokens.end(), output);
  }
  return {std::move(data), std::move(target)};
}

std::string GeneratedText::identity() const {
  const GeneratedLanguageOptions& language = language_.options();
  // Languages of different options differ in one of these.
  return "generated text of seed " + std::to_string(options_.seed) + ", sequences of " +
         std::to_string(options_.sequence_length) + " tokens of " + std::to_string(language_.vocab_size()) +
         ", counts " + std::to_string(language.smallest_count) + " to " +
         std::to_string(language.largest_count) + ", entropy " + std::to_string(language_.entropy_rate());
}

}  // namespace lockstep
