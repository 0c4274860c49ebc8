#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

/// A value that goes to a worker with a closure, or comes back from it.
using ClosureValue = std::variant<bool, int64_t, double, std::string, torch::Tensor>;
using ClosureValues = std::vector<ClosureValue>;

/// A function that workers run for the coordinator by its name.
using ClosureFunction = std::function<ClosureValues(const ClosureValues&)>;

namespace detail {

template <typename T>
struct IsTuple : std::false_type {};
template <typename... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};

template <typename T>
ClosureValue closure_value(T&& value) {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<Value, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<Value>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<Value>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_same_v<Value, torch::Tensor>) {
    return value;
  } else {
    static_assert(std::is_convertible_v<T, std::string>,
                  "closures take and return truth values, numbers, texts and tensors");
    return std::string(std::forward<T>(value));
  }
}

template <typename... T>
ClosureValues closure_values(T&&... values) {
  return {closure_value(std::forward<T>(values))...};
}

/// The alternative of ClosureValue that holds a `T`.
template <typename T>
using StoredInClosure =
    std::conditional_t<std::is_same_v<T, bool>, bool,
                       std::conditional_t<std::is_integral_v<T>, int64_t,
                                          std::conditional_t<std::is_floating_point_v<T>, double, T>>>;

/// The place of a value in a closure, for errors.
struct ClosurePosition {
  std::string closure;  ///< such as "closure 'train'"
  std::string value;    ///< such as "as argument 1"
};

/// Returns `closure 'name'`, or `closure` for a function without a name.
std::string closure_called(const std::string& name);

/// Throws InvalidArgument with both kinds and the position.
[[noreturn]] void refuse_closure_value(const ClosureValue& expected, const ClosureValue& given,
                                       const ClosurePosition& position);
/// Throws InvalidArgument with both numbers.
[[noreturn]] void refuse_closure_arguments(const std::string& name, size_t expected, size_t given);

/// Returns the value as a `T`. An integer is accepted as a floating-point number. Throws InvalidArgument for
/// a value of another kind, and for an integer that `T` cannot represent.
template <typename T>
T closure_value_as(const ClosureValue& value, const ClosurePosition& position) {
  using Stored = StoredInClosure<T>;
  if constexpr (std::is_floating_point_v<T>)
    if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<T>(*integer);
  const auto* stored = std::get_if<Stored>(&value);
  if (!stored) refuse_closure_value(Stored(), value, position);
  if constexpr (std::is_same_v<Stored, int64_t>)
    if (!std::in_range<T>(*stored))
      throw InvalidArgument(position.closure + ": expected a number of " + std::to_string(sizeof(T)) +
                            " bytes " + position.value + ", but got " + std::to_string(*stored));
  return static_cast<T>(*stored);
}

template <typename R, typename... Args>
struct Signature {
  using Result = R;
  using Arguments = std::tuple<std::remove_cvref_t<Args>...>;
};
template <typename R, typename... Args>
Signature<R, Args...> signature_of(R (*)(Args...));
template <typename R, typename C, typename... Args>
Signature<R, Args...> signature_of(R (C::*)(Args...));
template <typename R, typename C, typename... Args>
Signature<R, Args...> signature_of(R (C::*)(Args...) const);

template <typename Fn>
auto closure_signature() {
  if constexpr (std::is_pointer_v<Fn>) {
    return decltype(signature_of(std::declval<Fn>()))();
  } else {
    return decltype(signature_of(&Fn::operator()))();
  }
}

}  // namespace detail

/// Returns the results of `call()`, which returns nothing, one value, or several in a std::tuple.
template <typename Call>
ClosureValues closure_results(const Call& call) {
  using Result = std::invoke_result_t<const Call&>;
  if constexpr (std::is_void_v<Result>) {
    call();
    return {};
  } else if constexpr (detail::IsTuple<std::remove_cvref_t<Result>>::value) {
    return std::apply([](auto&&... values) { return detail::closure_values(values...); }, call());
  } else {
    return {detail::closure_value(call())};
  }
}

/// Wraps a function of such values, such as `[&](int64_t step, const torch::Tensor& ids) { return loss; }`.
/// It may return nothing, one value, or several in a std::tuple. The wrapper throws InvalidArgument with
/// `name` if it is called with arguments of another number or kind.
template <typename Fn>
ClosureFunction make_closure_function(Fn fn, std::string name = "") {
  using Signature = decltype(detail::closure_signature<Fn>());
  using Arguments = typename Signature::Arguments;
  return [fn = std::move(fn), name = std::move(name)](const ClosureValues& given) mutable -> ClosureValues {
    constexpr size_t kCount = std::tuple_size_v<Arguments>;
    if (given.size() != kCount) detail::refuse_closure_arguments(name, kCount, given.size());
    return [&]<size_t... I>(std::index_sequence<I...>)->ClosureValues {
      return closure_results([&] {
        return fn(detail::closure_value_as<std::tuple_element_t<I, Arguments>>(
            given[I], {detail::closure_called(name), "as argument " + std::to_string(I)})...);
      });
    }
    (std::make_index_sequence<kCount>());
  };
}

}  // namespace lockstep
