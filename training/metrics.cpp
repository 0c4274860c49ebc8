#include "lockstep/training/metrics.h"

#include <torch/utils.h>

#include <sstream>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

bool broadcasts_to(at::IntArrayRef from, at::IntArrayRef to) {
  if (from.size() > to.size()) return false;
  for (size_t i = 1; i <= from.size(); ++i) {
    const int64_t given = from[from.size() - i];
    if (given != 1 && given != to[to.size() - i]) return false;
  }
  return true;
}

[[noreturn]] void refuse(const char* metric, const std::string& expected, at::IntArrayRef given) {
  std::ostringstream message;
  message << "[" << metric << "] expected " << expected << ", but got " << given;
  throw InvalidArgument(message.str());
}

std::string shape(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

void add(torch::Tensor& state, const torch::Tensor& sum) {
  if (state.defined()) {
    state.add_(sum.to(state.device(), /*non_blocking=*/true));
  } else {
    state = sum;
  }
}

}  // namespace

void Mean::update(const torch::Tensor& values, const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  if (!weights.defined()) {
    add(total_, values.sum(torch::kDouble));
    if (!weight_.defined()) weight_ = torch::zeros_like(total_);
    weight_.add_(values.numel());
    return;
  }
  if (!broadcasts_to(weights.sizes(), values.sizes()))
    refuse("Mean", "weights that broadcast to the values' " + shape(values.sizes()), weights.sizes());
  const auto each = weights.to(values.device()).expand(values.sizes()).to(torch::kDouble);
  add(total_, (values.to(torch::kDouble) * each).sum());
  add(weight_, each.sum());
}

void Mean::reset() {
  const torch::NoGradGuard no_grad;
  for (auto* state : {&total_, &weight_}) {
    if (!state->defined()) continue;
    if (state->is_inference()) {
      state->reset();  // made under InferenceMode, where alone it may be changed
    } else {
      state->zero_();
    }
  }
}

double Mean::total() const {
  return total_.defined() ? total_.item<double>() : 0;
}

double Mean::count() const {
  return weight_.defined() ? weight_.item<double>() : 0;
}

void CategoricalAccuracy::update(const torch::Tensor& logits, const torch::Tensor& targets,
                                 const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  constexpr const char* kName = "CategoricalAccuracy";
  if (logits.dim() != 2 || logits.size(1) == 0) refuse(kName, "logits of [n, classes]", logits.sizes());
  const bool one_hot = targets.dim() == 2;
  if (one_hot ? targets.sizes() != logits.sizes() : targets.sizes() != logits.sizes().slice(0, 1)) {
    refuse(kName,
           "integer targets of " + shape(logits.sizes().slice(0, 1)) + " or one-hot ones of " +
               shape(logits.sizes()),
           targets.sizes());
  }
  if (!one_hot && (targets.is_floating_point() || targets.is_complex()))
    throw InvalidArgument(std::string("[CategoricalAccuracy] expected integer targets, but got ") +
                          c10::toString(targets.scalar_type()));
  if (weights.defined() && weights.sizes() != logits.sizes().slice(0, 1))
    refuse(kName, "weights of " + shape(logits.sizes().slice(0, 1)), weights.sizes());
  const auto expected = (one_hot ? targets.argmax(1) : targets).to(logits.device());
  matches_.update(logits.argmax(1).eq(expected), weights);
}

}  // namespace lockstep
