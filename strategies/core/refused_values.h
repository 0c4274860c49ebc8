/// Compile-time errors for values that Strategy::reduce() and torch::save() cannot take. strategy.h uses this
/// header.
#pragma once

#include <torch/serialize/output-archive.h>
#include <torch/types.h>

#include <type_traits>

#include "lockstep/runtime/replicas/function_rules.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/tensor_structure.h"

namespace lockstep {
namespace detail {

/// A value that reduce() can combine.
template <typename T>
concept Reducible = std::is_same_v<T, torch::Tensor> || std::is_arithmetic_v<T> || TensorStructure<T>;

/// Does not compile. States the rule that `T` breaks.
template <typename T>
auto refuse_reduce() {
  static_assert(
      is_allowed<T>,
      "reduce() takes tensors, numbers, and structures of tensors: reduce the members of another type one by "
      "one, such as values.map([](const Result& result) { return result.loss; })");
}

}  // namespace detail

/// Does not compile. Says what torch::save() takes instead.
template <typename T>
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const Mirrored<T>&) {
  static_assert(
      detail::is_allowed<T>,
      "torch::save() takes one replica's object: write torch::save(model.primary(), path) for a program with "
      "LibTorch, or save_weights() for one in Python");
  return archive;
}

}  // namespace lockstep
