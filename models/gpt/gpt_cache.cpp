#include "lockstep/models/gpt/gpt_cache.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep {
namespace {

/// Copies the new part behind the first `length` tokens, and returns all tokens so far.
torch::Tensor extended(const torch::Tensor& stored, const torch::Tensor& added, int64_t length) {
  const torch::NoGradGuard no_grad;
  stored.narrow(2, length, added.size(2)).copy_(added);
  return stored.narrow(2, 0, length + added.size(2));
}

}  // namespace

GptCache::GptCache(const GptOptions& model, GptCacheOptions options)
    : model_(complete_gpt_options(model)), options_(std::move(options)) {
  if (options_.capacity == 0) options_.capacity = model_.max_length;
  const auto& padding = options_.padding;
  if (options_.batch_size < 1 || options_.capacity < 1) {
    throw std::invalid_argument(
        c10::str("[GptCache] expected batch_size and capacity to be positive, but got ", options_.batch_size,
                 " and ", options_.capacity));
  }
  if (!padding.empty() && static_cast<int64_t>(padding.size()) != options_.batch_size) {
    throw std::invalid_argument(c10::str("[GptCache] expected padding for ", options_.batch_size,
                                         " sequences, but got ", padding.size()));
  }
  if (std::any_of(padding.begin(), padding.end(), [&](int64_t count) { return count < 0; }))
    throw std::invalid_argument("[GptCache] expected padding of 0 or more tokens");
  if (std::all_of(padding.begin(), padding.end(), [](int64_t count) { return count == 0; }))
    options_.padding.clear();
  layers_.resize(static_cast<size_t>(model_.num_layers));
}

void GptCache::keep_rows(const std::vector<int64_t>& rows) {
  std::vector<int64_t> padding;
  padding.reserve(rows.size());
  for (const int64_t row : rows) {
    if (row < 0 || row >= options_.batch_size) {
      throw std::invalid_argument(
          c10::str("[GptCache] expected rows below ", options_.batch_size, ", but got ", row));
    }
    if (!options_.padding.empty()) padding.push_back(options_.padding[static_cast<size_t>(row)]);
  }
  if (rows.empty()) throw std::invalid_argument("[GptCache] expected rows to keep, but got none");
  options_.padding = std::move(padding);
  options_.batch_size = static_cast<int64_t>(rows.size());
  const auto indices = torch::tensor(rows, torch::kLong);
  const auto select = [&](torch::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.index_select(0, indices.to(tensor.device()));
  };
  for (auto& layer : layers_) {
    select(layer.keys);
    select(layer.values);
  }
  select(padding_);
}

std::pair<torch::Tensor, torch::Tensor> GptCache::append(size_t layer, const torch::Tensor& keys,
                                                         const torch::Tensor& values) {
  auto& stored = layers_.at(layer);
  if (!stored.keys.defined()) {
    auto shape = keys.sizes().vec();
    shape[2] = options_.capacity;
    stored.keys = torch::empty(shape, keys.options());
    stored.values = torch::empty(shape, values.options());
  }
  return {extended(stored.keys, keys, length_), extended(stored.values, values, length_)};
}

void GptCache::check_room(const torch::Tensor& tokens) const {
  if (tokens.dim() != 2 || tokens.size(0) != options_.batch_size || tokens.size(1) < 1) {
    throw std::invalid_argument(c10::str("[Gpt] expected tokens of shape [", options_.batch_size,
                                         ", T] for this cache, but got ", tokens.sizes()));
  }
  const int64_t length = length_ + tokens.size(1);
  if (length > options_.capacity) {
    throw std::invalid_argument(
        c10::str("[Gpt] expected at most ", options_.capacity, " tokens in this cache, but got ", length));
  }
  const auto& padding = options_.padding;
  const int64_t longest = length - (padding.empty() ? 0 : *std::min_element(padding.begin(), padding.end()));
  if (longest > model_.max_length) {
    throw std::invalid_argument(
        c10::str("[Gpt] expected sequences of at most ", model_.max_length, " tokens, but got ", longest));
  }
}

}  // namespace lockstep
