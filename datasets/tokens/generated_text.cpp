#include "lockstep/datasets/tokens/generated_text.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "lockstep/datasets/files/internal/data_checksum.h"
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
  // Also tells the languages apart.
  constexpr uint64_t kDrawn = 16;
  DataChecksum checksum;
  std::vector<uint32_t> tokens(static_cast<size_t>(options_.sequence_length) + 1);
  for (uint64_t index = 0; index < kDrawn; ++index) {
    language_.draw({.seed = options_.seed, .index = index}, tokens);
    checksum.add(tokens.data(), tokens.size() * sizeof(uint32_t));
  }
  return "generated text of seed " + std::to_string(options_.seed) + " in sequences of " +
         std::to_string(options_.sequence_length) + " (checksum " + checksum.text() + ")";
}

}  // namespace lockstep
