#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Returns one value for each channel, or one for all, shaped to broadcast over images. Fills them in on the
/// images' device, since a copy to a GPU would make the host wait.
inline at::Tensor per_channel(const std::vector<double>& values, const at::Tensor& images) {
  at::Tensor result = torch::empty({1, static_cast<int64_t>(values.size()), 1, 1}, images.options());
  for (size_t i = 0; i < values.size(); ++i) result.select(1, static_cast<int64_t>(i)).fill_(values[i]);
  return result;
}

}  // namespace lockstep
