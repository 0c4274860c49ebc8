#include "lockstep/training/metrics/auc.h"

#include <torch/utils.h>

#include <limits>

#include "lockstep/training/metrics/internal/class_targets.h"

namespace lockstep {

void Auc::update(const torch::Tensor& scores, const torch::Tensor& targets, const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  const auto score = binary_scores("Auc", scores, targets, weights).to(torch::kDouble);
  const auto target = targets.reshape({-1}).ne(0).to(score.device(), torch::kDouble);
  const auto weight =
      weights.defined() ? weights.to(score.device(), torch::kDouble) : torch::ones_like(score);
  updates_.push_back(torch::stack({score, target, weight}, 1));
}

MetricState Auc::state() const {
  const torch::NoGradGuard no_grad;
  return {updates_.empty() ? torch::zeros({0, 3}, torch::kDouble) : torch::cat(updates_)};
}

double Auc::value(const MetricState& state) const {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  const auto& all = state[0];
  if (all.select(1, 0).isnan().any().item<bool>()) return kUndefined;
  const auto sorted = all.index_select(0, all.select(1, 0).argsort()).contiguous();
  const auto row = sorted.accessor<double, 2>();
  // Goes from the lowest score up: an example of class 1 beats all of class 0 below it, and half of those
  // with the same score.
  double negatives_below = 0, positives = 0, beaten = 0;
  for (int64_t i = 0; i < sorted.size(0);) {
    double tied_negatives = 0, tied_positives = 0;
    const double score = row[i][0];
    for (; i < sorted.size(0) && row[i][0] == score; ++i)
      (row[i][1] != 0 ? tied_positives : tied_negatives) += row[i][2];
    beaten += tied_positives * (negatives_below + tied_negatives / 2);
    negatives_below += tied_negatives;
    positives += tied_positives;
  }
  return positives == 0 || negatives_below == 0 ? kUndefined : beaten / (positives * negatives_below);
}

}  // namespace lockstep
