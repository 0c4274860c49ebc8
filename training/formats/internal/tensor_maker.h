#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <string>

#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// Returns the values of a tensor that has none yet, of the device "meta", on the CPU. Writers of files call
/// it when the values are to be written, and keep none of its results.
using TensorMaker = std::function<torch::Tensor(const torch::Tensor&)>;

/// Writes a file as the public save_safetensors() does, and calls `make` for each tensor of the device
/// "meta", in the order of in_safetensors_order(). Also throws what `make` throws.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata, const TensorMaker& make);

/// Returns the tensors in the order in which a .safetensors file holds them.
NamedTensors in_safetensors_order(const NamedTensors& tensors);

}  // namespace lockstep
