#pragma once

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/strategies/parallel/mixture_of_experts.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"

namespace lockstep {

/// A layer in float64 with values that do not depend on random numbers.
inline MixtureOfExperts wave_experts(const MixtureOfExpertsOptions& options, double phase = 10) {
  auto experts = made_apart([&] { return MixtureOfExperts(options); });
  experts->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& item : experts->named_parameters()) {
    item.value().copy_(wave_values(item.value().sizes(), phase));
    phase += 1;
  }
  return experts;
}

/// Parameters of a layer by name, as leaves of their own.
class PlainExperts {
 public:
  PlainExperts(const MixtureOfExperts& like, const MixtureOfExpertsOptions& options) : options_(options) {
    for (const auto& item : like->named_parameters())
      parameters.emplace_back(item.key(), item.value().detach().clone().requires_grad_());
  }

  torch::Tensor at(const std::string& name) const {
    for (const auto& [key, value] : parameters)
      if (key == name) return value;
    return {};
  }

  /// Returns what one MLP makes of a vector [features].
  torch::Tensor mlp(const torch::Tensor& x, const std::string& prefix, std::optional<int64_t> expert) const {
    const auto linear = [&](const torch::Tensor& in, const std::string& name) {
      auto weight = at(prefix + name + ".weight");
      auto bias = at(prefix + name + ".bias");
      if (expert) weight = weight[*expert];
      if (expert && bias.defined()) bias = bias[*expert];
      const auto product = torch::mv(weight, in);
      return bias.defined() ? product + bias : product;
    };
    const auto up = linear(x, "up");
    switch (options_.activation) {
      case ExpertActivation::kGelu:
        return linear(torch::gelu(up), "down");
      case ExpertActivation::kGeluTanh:
        return linear(torch::gelu(up, "tanh"), "down");
      default:
        return linear(torch::silu(linear(x, "gate")) * up, "down");
    }
  }

  /// The layer without capacity, in loops over tokens and their experts: input [sequences, tokens, features].
  MixtureOutput forward(const torch::Tensor& input) const {
    const int64_t experts = options_.num_experts;
    const int64_t chosen_of_token = options_.experts_per_token;
    const int64_t length = input.size(1);
    std::vector<torch::Tensor> outputs, balances, zs;
    for (int64_t sequence = 0; sequence < input.size(0); ++sequence) {
      std::vector<double> shares(static_cast<size_t>(experts), 0);
      std::vector<torch::Tensor> rows, probabilities;
      torch::Tensor z = torch::zeros({}, input.dtype());
      for (int64_t token = 0; token < length; ++token) {
        const auto x = input[sequence][token];
        const auto logits = torch::mv(at("router.weight"), x);
        const auto exponents = logits.exp();
        probabilities.push_back(exponents / exponents.sum());
        z = z + exponents.sum().log().square();
        std::vector<int64_t> by_probability(static_cast<size_t>(experts));
        for (int64_t expert = 0; expert < experts; ++expert)
          by_probability[static_cast<size_t>(expert)] = expert;
        std::sort(by_probability.begin(), by_probability.end(), [&](int64_t a, int64_t b) {
          return probabilities.back()[a].item<double>() > probabilities.back()[b].item<double>();
        });
        torch::Tensor total = torch::zeros({}, input.dtype());
        torch::Tensor sum = torch::zeros({options_.features}, input.dtype());
        for (int64_t i = 0; i < chosen_of_token; ++i) {
          const int64_t expert = by_probability[static_cast<size_t>(i)];
          const auto probability = probabilities.back()[expert];
          total = total + probability;
          sum = sum + probability * mlp(x, "", expert);
          shares[static_cast<size_t>(expert)] += 1.0 / static_cast<double>(length * chosen_of_token);
        }
        if (options_.normalizes && chosen_of_token > 1) sum = sum / total;
        if (options_.num_shared_experts > 0) sum = sum + mlp(x, "shared_", std::nullopt);
        rows.push_back(sum);
      }
      outputs.push_back(torch::stack(rows));
      const auto mean = torch::stack(probabilities).mean(0);
      balances.push_back((torch::tensor(shares, input.dtype()) * mean).sum() * static_cast<double>(experts));
      zs.push_back(z / static_cast<double>(length));
    }
    return {torch::stack(outputs), torch::stack(balances), torch::stack(zs)};
  }

  std::vector<std::pair<std::string, torch::Tensor>> parameters;

 private:
  MixtureOfExpertsOptions options_;
};

}  // namespace lockstep
