#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

namespace lockstep {

struct ModelSummaryOptions {
  /// Levels below the model whose modules get a line; deeper modules count with their parent.
  int64_t depth = 2;
};

/// Returns the number of elements of all parameters. Shards count as the whole parameters.
int64_t count_parameters(const torch::nn::Module& module);

/// Returns a table of a model's modules in the order of their registration: name, kind, shapes of their own
/// parameters, and the number of parameters including all modules below. The totals follow: parameters, how
/// many are trained, and the bytes of parameters and buffers. Of shards, sizes and numbers are those of the
/// whole parameters, and the bytes those of the shards. Plain text that ends with a newline.
std::string model_summary(const torch::nn::Module& module, const ModelSummaryOptions& options = {});

}  // namespace lockstep
