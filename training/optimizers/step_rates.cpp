#include "lockstep/training/optimizers/step_rates.h"

#include <torch/utils.h>

namespace lockstep {

void StepRates::set(Rate& rate, double value) {
  if (rate.value == value) return;
  const torch::NoGradGuard no_grad;
  rate.tensor.fill_(value);
  rate.value = value;
}

const torch::Tensor& StepRates::get(size_t group, torch::Device device, double rate) {
  for (auto& known : rates_) {
    if (known.group != group || known.tensor.device() != device) continue;
    set(known, rate);
    return known.tensor;
  }
  const auto options = torch::dtype(torch::kFloat32).device(device);
  return rates_.emplace_back(Rate{group, torch::full({}, rate, options), rate}).tensor;
}

void StepRates::describe(Fingerprint& fingerprint) const {
  for (const auto& known : rates_) fingerprint.add_identity(known.tensor);
}

void StepRates::refresh(const std::function<double(size_t group)>& rate_of) {
  for (auto& known : rates_) set(known, rate_of(known.group));
}

}  // namespace lockstep
