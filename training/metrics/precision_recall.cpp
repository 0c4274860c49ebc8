#include "lockstep/training/metrics/precision_recall.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/metrics/internal/class_targets.h"

namespace lockstep {

PredictionCounts::PredictionCounts(const char* name, const PrecisionRecallOptions& options)
    : name_(name), options_(options) {
  const int64_t classes = options.num_classes;
  if (classes < 1)
    throw InvalidArgument(c10::str("[", name, "] expected 1 or more classes, but got ", classes));
  if (options.class_id && (*options.class_id < 0 || *options.class_id >= classes)) {
    throw InvalidArgument(c10::str("[", name, "] expected a class_id from 0 to ", classes - 1, ", but got ",
                                   *options.class_id));
  }
}

void PredictionCounts::update(const torch::Tensor& outputs, const torch::Tensor& targets,
                              const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  torch::Tensor predicted, actual;  // [n, classes]
  if (options_.num_classes == 1) {
    const auto scores = binary_scores(name_, outputs, targets, weights);
    predicted = scores.gt(options_.threshold).unsqueeze(1);
    actual = targets.reshape({-1, 1}).ne(0).to(scores.device());
  } else {
    const auto expected = class_targets(name_, outputs, targets, weights);
    if (outputs.size(1) != options_.num_classes)
      refuse_shape(name_, c10::str("logits of [n, ", options_.num_classes, "]"), outputs.sizes());
    const auto classes = torch::arange(options_.num_classes, expected.options());
    predicted = outputs.argmax(1).unsqueeze(1).eq(classes);
    actual = expected.unsqueeze(1).eq(classes);
  }
  const auto count = [&](const torch::Tensor& each) {
    const auto value = each.to(torch::kDouble);
    return (weights.defined() ? value * weights.to(value.device(), torch::kDouble).unsqueeze(1) : value)
        .sum(0);
  };
  const auto counts =
      torch::stack({count(predicted.logical_and(actual)), count(predicted.logical_and(actual.logical_not())),
                    count(predicted.logical_not().logical_and(actual))});
  if (counts_.defined()) {
    counts_.add_(counts.to(counts_.device()));
  } else {
    counts_ = counts;
  }
}

void PredictionCounts::reset() {
  clear_state(counts_);
}

MetricState PredictionCounts::state() const {
  return {counts_.defined() ? counts_ : torch::zeros({3, options_.num_classes}, torch::kDouble)};
}

double PredictionCounts::share(const MetricState& state, int64_t other) const {
  const auto& counts = state[0];
  const auto hits = counts[0];
  const auto all = hits + counts[other];
  const auto shares = torch::where(all.gt(0), hits / all, torch::zeros_like(all));
  if (options_.num_classes == 1) return shares[0].item<double>();
  if (options_.class_id) return shares[*options_.class_id].item<double>();
  const auto occurs = counts.sum(0).gt(0);
  const auto num_classes = occurs.sum().item<int64_t>();
  return num_classes == 0 ? 0 : shares.sum().item<double>() / static_cast<double>(num_classes);
}

}  // namespace lockstep
