#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep {
namespace detail {

template <typename T>
inline constexpr bool is_vector = false;
template <typename T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <typename T>
inline constexpr bool is_map = false;
template <typename Key, typename T>
inline constexpr bool is_map<std::map<Key, T>> = true;
template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// std::tuple, std::pair and std::array.
template <typename T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

/// Your own struct: `value.for_each_tensor(visit)` calls `visit(tensor)` with a reference to every tensor.
template <typename T>
concept VisitsTensors = requires(T& value, void (*exchange)(torch::Tensor&)) {
  value.for_each_tensor(exchange);
};

template <typename T>
struct IsTensorStructure;
template <typename T>
inline constexpr bool is_tensor_structure = IsTensorStructure<T>::value;

template <typename T, size_t... I>
constexpr bool all_are_structures(std::index_sequence<I...>) {
  return (is_tensor_structure<std::tuple_element_t<I, T>> && ...);
}

template <typename T>
struct IsTensorStructure {
  static constexpr bool compute() {
    if constexpr (std::same_as<T, torch::Tensor>) {
      return true;
    } else if constexpr (std::is_arithmetic_v<T>) {
      return !std::same_as<T, bool>;
    } else if constexpr (TupleLike<T>) {
      return all_are_structures<T>(std::make_index_sequence<std::tuple_size_v<T>>());
    } else if constexpr (is_vector<T> || is_optional<T>) {
      return is_tensor_structure<typename T::value_type>;
    } else if constexpr (is_map<T>) {
      return is_tensor_structure<typename T::mapped_type>;
    } else {
      return HasTensors<T> || VisitsTensors<T>;
    }
  }
  static constexpr bool value = compute();
};

/// Calls `visit` with a reference to every tensor and number, in an order that depends only on the structure.
template <typename T, typename Visit>
void visit_leaves(T& value, const Visit& visit) {
  using Value = std::remove_const_t<T>;
  if constexpr (std::same_as<Value, torch::Tensor> || std::is_arithmetic_v<Value>) {
    visit(value);
  } else if constexpr (TupleLike<Value>) {
    std::apply([&](auto&... part) { (visit_leaves(part, visit), ...); }, value);
  } else if constexpr (is_vector<Value>) {
    for (auto& part : value) visit_leaves(part, visit);
  } else if constexpr (is_optional<Value>) {
    if (value) visit_leaves(*value, visit);
  } else if constexpr (is_map<Value>) {
    for (auto& [key, part] : value) visit_leaves(part, visit);
  } else if constexpr (HasTensors<Value>) {
    BatchTraits<Value>::for_each_tensor(value, visit);
  } else {
    value.for_each_tensor(visit);
  }
}

/// Returns the number as a tensor: int64 for integers, else float64.
template <typename N>
torch::Tensor tensor_of_number(N number) {
  if constexpr (std::is_integral_v<N>)
    return torch::scalar_tensor(static_cast<int64_t>(number), torch::kLong);
  return torch::scalar_tensor(static_cast<double>(number), torch::kDouble);
}

/// Throws InvalidArgument for a mean of integers.
void check_number(const torch::Tensor& result, bool is_integer);

/// Returns all tensors and numbers of a value, as tensors. A copy of the value shares its tensors.
template <typename T>
std::vector<torch::Tensor> leaves_of(T value) {
  std::vector<torch::Tensor> leaves;
  visit_leaves(value, [&](auto& leaf) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(leaf)>, torch::Tensor>) {
      leaves.push_back(leaf);
    } else {
      leaves.push_back(tensor_of_number(leaf));
    }
  });
  return leaves;
}

/// Returns `value` with other tensors and numbers. Throws as check_number().
template <typename T>
T with_leaves(T value, const std::vector<torch::Tensor>& leaves) {
  size_t next = 0;
  visit_leaves(value, [&](auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    const torch::Tensor& given = leaves[next++];
    if constexpr (std::same_as<Leaf, torch::Tensor>) {
      leaf = given;
    } else {
      check_number(given, std::is_integral_v<Leaf>);
      leaf = static_cast<Leaf>(given.item<std::conditional_t<std::is_integral_v<Leaf>, int64_t, double>>());
    }
  });
  return value;
}

}  // namespace detail

/// Values that reduce() and gather() combine part by part: tuples, pairs, arrays, vectors, optionals and maps
/// of tensors, numbers and each other; batches whose BatchTraits have for_each_tensor(); and your own
/// structs:
///
///     struct StepResult {
///       torch::Tensor loss;
///       torch::Tensor hits;
///       template <typename Visit>
///       void for_each_tensor(const Visit& visit) {
///         visit(loss);
///         visit(hits);
///       }
///     };
template <typename T>
concept TensorStructure =
    detail::is_tensor_structure<T> && !std::same_as<T, torch::Tensor> && !std::is_arithmetic_v<T>;

}  // namespace lockstep
