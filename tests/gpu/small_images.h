#pragma once

#include <torch/types.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep {

inline Example images_of_three_classes(int64_t count) {
  torch::manual_seed(21);
  return {torch::randn({count, 1, 6, 6}), torch::randint(0, 3, {count})};
}

inline std::vector<torch::Tensor> on_host(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().cpu());
  return copies;
}

}  // namespace lockstep
