#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

namespace lockstep {

struct ModelSummaryOptions {
  /// How deep below the model modules have a line of their own; what lies deeper is counted with its parent.
  int64_t depth = 2;
};

/// The number of elements of all parameters.
int64_t count_parameters(const torch::nn::Module& module);

/// A table of a model's modules in the order of their registration: name, kind, shapes of their own
/// parameters, and the number of parameters with all below them; then the totals, trained and not, and the
/// bytes of parameters and buffers. Plain text, with a line end after the last line.
std::string model_summary(const torch::nn::Module& module, const ModelSummaryOptions& options = {});

}  // namespace lockstep
