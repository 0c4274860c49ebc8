#include "lockstep/strategies/parallel/internal/stage_gradients.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {
namespace {

/// Passes its gradient on without keeping it.
struct GivesGradient : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*inputs*/) override {
    return {std::move(gradient)};
  }
  torch::Tensor gradient;
};

/// Runs backward through the parameter alone. Its grad() takes the memory of `gradient`, which
/// torch::autograd::backward() would copy, because its caller still has the tensor.
void give_gradient(const torch::Tensor& parameter, torch::Tensor gradient) {
  const auto giver = std::make_shared<GivesGradient>();
  const torch::Tensor unused =
      torch::empty({}, torch::dtype(gradient.scalar_type()).device(gradient.device()));
  giver->add_input_metadata(unused);
  giver->add_next_edge(torch::autograd::impl::gradient_edge(parameter));
  giver->gradient = std::move(gradient);
  torch::autograd::Engine::get_default_engine().execute({{giver, 0}}, {unused}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace

StageGradients::StageGradients(const StageParameters& parameters, int num_stages, int micro_batches)
    : parameters_(parameters),
      sums_(parameters.own().size()),
      backwards_left_(static_cast<size_t>(num_stages), micro_batches) {
  for (int stage = 0; stage < num_stages; ++stage)
    for (const size_t number : parameters_.of_stage(stage)) ++sums_[number].uses_left;
  const auto& own = parameters_.own();
  for (const auto& shared : parameters_.shared()) {
    const auto found = std::find_if(
        own.begin(), own.end(), [&](const auto& parameter) { return parameter.is_same(shared.parameter); });
    if (found != own.end()) sums_[static_cast<size_t>(found - own.begin())].shared = &shared;
  }
}

std::vector<torch::Tensor> StageGradients::parameters_of(int stage) const {
  std::vector<torch::Tensor> parameters;
  for (const size_t number : parameters_.of_stage(stage)) parameters.push_back(parameters_.own()[number]);
  return parameters;
}

void StageGradients::add(int stage, std::vector<torch::Tensor> gradients) {
  const auto& numbers = parameters_.of_stage(stage);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!gradients[i].defined()) continue;
    auto& [value, is_own, uses_left, shared] = sums_[numbers[i]];
    if (!value.defined()) {
      // Backward may have passed its memory on elsewhere.
      value = std::move(gradients[i]);
    } else if (is_own && value.layout() == torch::kStrided && gradients[i].layout() == torch::kStrided) {
      value.add_(gradients[i]);
    } else {
      value = value + gradients[i];
      is_own = true;
    }
  }
}

void StageGradients::end_micro_batch(int stage) {
  if (--backwards_left_[static_cast<size_t>(stage)] > 0) return;
  const auto& numbers = parameters_.of_stage(stage);
  for (size_t i = numbers.size(); i-- > 0;) {
    Sum& sum = sums_[numbers[i]];
    if (--sum.uses_left == 0 && sum.shared == nullptr) hand_on(numbers[i]);
  }
}

void StageGradients::finish(int rank, const ReplicaBackends* ranks, WaitClock* waits) {
  for (size_t number = 0; number < sums_.size(); ++number) {
    if (sums_[number].shared == nullptr || !parameters_.own()[number].requires_grad()) continue;
    const WaitClock::Wait wait(*waits);
    sum_over_ranks(number, rank, *ranks);
  }
  for (size_t number = sums_.size(); number-- > 0;) hand_on(number);
  for (const auto& parameter : parameters_.others()) {
    // Optimizers then have a state of each parameter on each rank.
    if (parameter.requires_grad()) torch::autograd::backward({parameter}, {torch::zeros_like(parameter)});
  }
}

/// Passes a gradient to the parameter as a backward would, so that sums over the replicas begin.
void StageGradients::hand_on(size_t number) {
  Sum& sum = sums_[number];
  torch::Tensor gradient = std::exchange(sum.value, {});
  if (!gradient.defined()) return;
  const torch::Tensor& parameter = parameters_.own()[number];
  if (sum.is_own) {
    give_gradient(parameter, std::move(gradient));
  } else {
    torch::autograd::backward({parameter}, {std::move(gradient)});  // copies it
  }
}

/// Adds up the gradients of a parameter that several stages use, in the order of these on all ranks.
void StageGradients::sum_over_ranks(size_t number, int rank, const ReplicaBackends& ranks) {
  const torch::Tensor& parameter = parameters_.own()[number];
  const torch::NoGradGuard no_grad;
  torch::Tensor own = std::exchange(sums_[number].value, {});
  own = own.defined() ? own.contiguous() : torch::zeros_like(parameter, at::MemoryFormat::Contiguous);
  const auto& sharing = sums_[number].shared->ranks;
  for (const int other : sharing) {
    if (other != rank) send(ranks, own, other);
  }
  torch::Tensor sum;
  for (const int other : sharing) {
    torch::Tensor term = own;
    if (other != rank) {
      term = torch::empty_like(own);
      receive_(ranks, term, other);
    }
    sum = sum.defined() ? sum + term : term;
  }
  sums_[number].value = sum;
  sums_[number].is_own = sharing.size() > 1;
}

}  // namespace lockstep
