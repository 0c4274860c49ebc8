#include "lockstep/models/wide_and_deep.h"

#include <torch/utils.h>

#include <memory>
#include <sstream>
#include <stdexcept>

#include "lockstep/models/internal/dense_layers.h"

namespace lockstep {
namespace {

constexpr const char* kWideAndDeep = "WideAndDeep";

}  // namespace

WideAndDeepImpl::WideAndDeepImpl(const WideAndDeepOptions& options) : options_(options) {
  if (options.num_numbers < 1 || options.num_categories < 1 || options.embedding_dim < 1)
    throw std::invalid_argument(
        "[WideAndDeep] expected 1 or more numbers, categories and columns of embeddings");
  reset();
}

void WideAndDeepImpl::reset() {
  linear_ = register_module("linear", torch::nn::Linear(options_.num_numbers, 1));
  auto units = options_.hidden_units;
  units.push_back(1);
  const int64_t inputs = options_.num_numbers + options_.num_categories * options_.embedding_dim;
  deep_ = register_module("deep", dense_layers(kWideAndDeep, inputs, units, /*has_last_relu=*/false));
}

torch::Tensor WideAndDeepImpl::forward(const torch::Tensor& numbers, const torch::Tensor& wide,
                                       const torch::Tensor& embedded) {
  const int64_t count = numbers.dim() == 2 ? numbers.size(0) : -1;
  if (count < 0 || numbers.size(1) != options_.num_numbers || wide.sizes() != torch::IntArrayRef{count} ||
      embedded.sizes() != torch::IntArrayRef({count, options_.num_categories, options_.embedding_dim})) {
    std::ostringstream message;
    message << "[WideAndDeep] expected numbers [N, " << options_.num_numbers
            << "], wide [N] and embedded [N, " << options_.num_categories << ", " << options_.embedding_dim
            << "], but got " << numbers.sizes() << ", " << wide.sizes() << " and " << embedded.sizes();
    throw std::invalid_argument(message.str());
  }
  const auto deep = deep_->forward(torch::cat({numbers, embedded.flatten(1)}, 1));
  return (linear_(numbers) + deep).squeeze(1) + wide;
}

WideAndDeep::WideAndDeep(const WideAndDeepOptions& options)
    : ModuleHolder(std::make_shared<WideAndDeepImpl>(options)) {}

}  // namespace lockstep
