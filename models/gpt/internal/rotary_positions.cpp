#include "lockstep/models/gpt/internal/rotary_positions.h"

#include <torch/utils.h>

#include <numbers>

namespace lockstep {
namespace {

/// The frequencies [head_width / 2], in radians a position.
torch::Tensor rotary_frequencies(const GptOptions& options, torch::Device device) {
  const RotaryOptions& rotary = options.rotary;
  const auto exponents = torch::arange(0, options.head_width, 2, torch::dtype(torch::kFloat).device(device)) /
                         static_cast<double>(options.head_width);
  const auto frequencies = torch::pow(rotary.theta, exponents).reciprocal();
  if (rotary.scaling == RotaryScaling::kNone) return frequencies;
  if (rotary.scaling == RotaryScaling::kLinear) return frequencies / rotary.factor;
  const auto turns = static_cast<double>(rotary.original_length) / (2 * std::numbers::pi) * frequencies;
  const auto kept =
      ((turns - rotary.low_frequency_factor) / (rotary.high_frequency_factor - rotary.low_frequency_factor))
          .clamp(0, 1);
  return kept * frequencies + (1 - kept) * (frequencies / rotary.factor);
}

}  // namespace

RotaryFactors rotary_factors(const GptOptions& options, int64_t length, torch::Device device) {
  const torch::NoGradGuard no_grad;
  const auto positions = torch::arange(length, torch::dtype(torch::kFloat).device(device));
  const auto angles = torch::outer(positions, rotary_frequencies(options, device));
  const auto cosines = angles.cos();
  const auto sines = angles.sin();
  return {.cosines = torch::cat({cosines, cosines}, 1), .sines = torch::cat({-sines, sines}, 1)};
}

torch::Tensor rotate(const torch::Tensor& heads, const RotaryFactors& factors) {
  const auto cosines = factors.cosines.unsqueeze(-2).to(heads.scalar_type());
  const auto sines = factors.sines.unsqueeze(-2).to(heads.scalar_type());
  const auto partners = heads.roll(heads.size(-1) / 2, -1);
  return torch::addcmul(heads * cosines, partners, sines);
}

}  // namespace lockstep
