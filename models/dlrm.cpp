#include "lockstep/models/dlrm.h"

#include <torch/utils.h>

#include <memory>
#include <sstream>
#include <stdexcept>

#include "lockstep/models/internal/dense_layers.h"

namespace lockstep {
namespace {

constexpr const char* kDlrm = "Dlrm";

/// Returns the pairs of `count` vectors as indices into the flattened matrix of their products, below its
/// diagonal.
torch::Tensor places_of_pairs(int64_t count, torch::Device device) {
  const auto pairs =
      torch::tril_indices(count, count, /*offset=*/-1, torch::dtype(torch::kLong).device(device));
  return pairs[0] * count + pairs[1];
}

}  // namespace

DlrmImpl::DlrmImpl(const DlrmOptions& options) : options_(options) {
  if (options.num_numbers < 1 || options.num_categories < 1 || options.embedding_dim < 1)
    throw std::invalid_argument("[Dlrm] expected 1 or more numbers, categories and columns of embeddings");
  reset();
}

void DlrmImpl::reset() {
  auto bottom = options_.bottom_units;
  bottom.push_back(options_.embedding_dim);
  bottom_ =
      register_module("bottom", dense_layers(kDlrm, options_.num_numbers, bottom, /*has_last_relu=*/true));
  const int64_t num_pairs = options_.num_categories * (options_.num_categories + 1) / 2;
  auto top = options_.top_units;
  top.push_back(1);
  top_ = register_module(
      "top", dense_layers(kDlrm, options_.embedding_dim + num_pairs, top, /*has_last_relu=*/false));
}

torch::Tensor DlrmImpl::forward(const torch::Tensor& numbers, const torch::Tensor& embedded) {
  const int64_t count = numbers.dim() == 2 ? numbers.size(0) : -1;
  if (count < 0 || numbers.size(1) != options_.num_numbers ||
      embedded.sizes() != torch::IntArrayRef({count, options_.num_categories, options_.embedding_dim})) {
    std::ostringstream message;
    message << "[Dlrm] expected numbers [N, " << options_.num_numbers << "] and embedded [N, "
            << options_.num_categories << ", " << options_.embedding_dim << "], but got " << numbers.sizes()
            << " and " << embedded.sizes();
    throw std::invalid_argument(message.str());
  }
  const auto of_numbers = bottom_->forward(numbers);
  const auto all = torch::cat({of_numbers.unsqueeze(1), embedded}, 1);
  const auto pairs = places_of_pairs(all.size(1), all.device());
  const auto products = torch::bmm(all, all.transpose(1, 2)).flatten(1).index_select(1, pairs);
  return top_->forward(torch::cat({of_numbers, products}, 1)).squeeze(1);
}

Dlrm::Dlrm(const DlrmOptions& options) : ModuleHolder(std::make_shared<DlrmImpl>(options)) {}

}  // namespace lockstep
