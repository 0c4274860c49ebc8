#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Returns whether a change of one tensor changes the other. A sparse tensor shares memory with itself only.
inline bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.layout() != at::kStrided || b.layout() != at::kStrided) return a.is_same(b);
  return a.is_alias_of(b);
}

}  // namespace lockstep
