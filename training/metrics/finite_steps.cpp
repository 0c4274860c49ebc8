#include "lockstep/training/metrics/finite_steps.h"

#include <torch/utils.h>

#include <utility>

namespace lockstep {

void FiniteSteps::update(const torch::Tensor& losses) {
  const torch::NoGradGuard no_grad;
  const auto finite = losses.isfinite().all();
  if (!unbroken_.defined()) {
    unbroken_ = torch::ones_like(finite);
    count_ = torch::zeros_like(finite, torch::kLong);
    steps_ = torch::zeros_like(count_);
  }
  unbroken_.logical_and_(finite);
  count_.add_(unbroken_);
  steps_.add_(1);
}

void FiniteSteps::reset() {
  if (!unbroken_.defined()) return;
  const torch::NoGradGuard no_grad;
  unbroken_.fill_(true);
  count_.zero_();
  steps_.zero_();
}

std::vector<torch::Tensor> FiniteSteps::state() const {
  if (!count_.defined()) return {torch::zeros({}, torch::kLong), torch::zeros({}, torch::kLong)};
  return {count_, steps_};
}

void FiniteSteps::restore(std::vector<torch::Tensor> state) {
  count_ = std::move(state[0]);
  steps_ = std::move(state[1]);
  unbroken_ = count_.eq(steps_);
}

std::vector<FiniteCount> count_finite(const PerReplica<FiniteSteps>& steps, Strategy& strategy,
                                      bool all_workers) {
  const int64_t first = strategy.first_local_replica();
  std::vector<FiniteCount> counts;
  for (const auto& local : steps.local_values()) {
    const size_t index = counts.size();
    counts.push_back(
        {first + static_cast<int64_t>(index), (*steps.devices())[index].str(), local.count(), local.steps()});
  }
  if (!all_workers || strategy.num_local_replicas() == strategy.num_ranks()) return counts;
  std::vector<torch::Tensor> rows;
  rows.reserve(counts.size());
  for (const auto& count : counts) rows.push_back(torch::tensor({count.good, count.steps}, torch::kLong));
  std::vector<torch::Tensor> of_workers;
  for (const auto& own : strategy.extended().gather_tensors({torch::stack(rows)}))
    of_workers.push_back(own.front());
  const auto all = torch::cat(of_workers);
  std::vector<FiniteCount> everywhere;
  for (int64_t replica = 0; replica < all.size(0); ++replica) {
    const int64_t here = replica - first;
    const bool is_here = here >= 0 && here < static_cast<int64_t>(counts.size());
    everywhere.push_back({replica, is_here ? counts[static_cast<size_t>(here)].device : "of another worker",
                          all[replica][0].item<int64_t>(), all[replica][1].item<int64_t>()});
  }
  return everywhere;
}

}  // namespace lockstep
