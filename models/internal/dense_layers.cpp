#include "lockstep/models/internal/dense_layers.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>

namespace lockstep {

torch::nn::Sequential dense_layers(const std::string& model, int64_t inputs,
                                   const std::vector<int64_t>& units, bool has_last_relu) {
  const auto check = [&](const char* what, int64_t given) {
    if (given < 1)
      throw std::invalid_argument("[" + model + "] expected 1 or more " + what + ", but got " +
                                  std::to_string(given));
  };
  check("inputs", inputs);
  check("dense layers", static_cast<int64_t>(units.size()));
  torch::nn::Sequential layers;
  for (size_t i = 0; i < units.size(); ++i) {
    check("units of a dense layer", units[i]);
    layers->push_back(torch::nn::Linear(inputs, units[i]));
    if (i + 1 < units.size() || has_last_relu)
      layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)));
    inputs = units[i];
  }
  return layers;
}

}  // namespace lockstep
