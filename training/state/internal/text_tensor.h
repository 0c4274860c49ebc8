#pragma once

#include <torch/types.h>

#include <cstring>
#include <string>

namespace lockstep {

/// Returns the text's bytes as a tensor for collectives.
inline torch::Tensor text_tensor(const std::string& text) {
  auto tensor = torch::empty({static_cast<int64_t>(text.size())}, torch::kUInt8);
  if (!text.empty()) std::memcpy(tensor.mutable_data_ptr(), text.data(), text.size());
  return tensor;
}

/// Returns the text with these bytes.
inline std::string text_of_tensor(const torch::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace lockstep
