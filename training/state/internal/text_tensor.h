#pragma once

#include <torch/types.h>

#include <cstring>
#include <string>

namespace lockstep {

/// The text's bytes, as collectives take them.
inline torch::Tensor text_tensor(const std::string& text) {
  auto tensor = torch::empty({static_cast<int64_t>(text.size())}, torch::kUInt8);
  if (!text.empty()) std::memcpy(tensor.mutable_data_ptr(), text.data(), text.size());
  return tensor;
}

/// The text whose bytes these are.
inline std::string text_of_tensor(const torch::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace lockstep
