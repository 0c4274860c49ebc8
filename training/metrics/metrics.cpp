#include "lockstep/training/metrics/metrics.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/metrics/internal/class_targets.h"

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

void add(torch::Tensor& state, const torch::Tensor& sum) {
  if (state.defined()) {
    state.add_(sum.to(state.device()));
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
  if (!broadcasts_to(weights.sizes(), values.sizes())) {
    refuse_shape("Mean", c10::str("weights that broadcast to the values' ", values.sizes()), weights.sizes());
  }
  const auto each = weights.to(values.device()).expand(values.sizes()).to(torch::kDouble);
  add(total_, (values.to(torch::kDouble) * each).sum());
  add(weight_, each.sum());
}

void Mean::reset() {
  clear_state(total_);
  clear_state(weight_);
}

double Mean::total() const {
  return total_.defined() ? total_.item<double>() : 0;
}

double Mean::count() const {
  return weight_.defined() ? weight_.item<double>() : 0;
}

MetricState Mean::state() const {
  if (!total_.defined()) return {torch::zeros({}, torch::kDouble), torch::zeros({}, torch::kDouble)};
  return {total_, weight_};
}

void Mean::restore(MetricState state) {
  total_ = std::move(state[0]);
  weight_ = std::move(state[1]);
}

double Mean::value(const MetricState& state) const {
  const auto count = state[1].item<double>();
  return count == 0 ? 0 : state[0].item<double>() / count;
}

TopKCategoricalAccuracy::TopKCategoricalAccuracy(int64_t k) : k_(k) {
  if (k < 1)
    throw InvalidArgument(c10::str("[TopKCategoricalAccuracy] expected a k of 1 or more, but got ", k));
}

void TopKCategoricalAccuracy::update(const torch::Tensor& logits, const torch::Tensor& targets,
                                     const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  const auto expected = class_targets("CategoricalAccuracy", logits, targets, weights);
  if (k_ == 1) {
    matches_.update(logits.argmax(1).eq(expected), weights);
    return;
  }
  // A stable sort keeps equal logits in the order of their classes; topk() does not promise this.
  const auto order = std::get<1>(logits.sort(/*stable=*/true, 1, /*descending=*/true));
  const auto best = order.narrow(1, 0, std::min(k_, logits.size(1)));
  matches_.update(best.eq(expected.unsqueeze(1)).any(1), weights);
}

}  // namespace lockstep
