/// Compile-time errors for functions that Strategy::run() and scope() cannot call. Each states the rule that
/// the function breaks, in place of the compiler's list of overloads. strategy.h uses this header.
#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "lockstep/runtime/replicas/replica_function.h"

namespace lockstep::detail {

/// Types of a function's parameters, as a tuple; void for generic lambdas and overloaded functions.
template <typename Fn>
struct Parameters {
  using Types = void;
};
template <typename R, typename... P>
struct Parameters<R(P...)> {
  using Types = std::tuple<P...>;
};
template <typename R, typename... P>
struct Parameters<R (*)(P...)> : Parameters<R(P...)> {};
template <typename R, typename C, typename... P>
struct Parameters<R (C::*)(P...)> : Parameters<R(P...)> {};
template <typename R, typename C, typename... P>
struct Parameters<R (C::*)(P...) const> : Parameters<R(P...)> {};
template <typename Fn>
requires requires {
  &Fn::operator();
}
struct Parameters<Fn> : Parameters<decltype(&Fn::operator())> {};

/// Whether a list of parameters, if it is known, begins with the context.
template <typename Types>
inline constexpr bool begins_with_context = true;
template <>
inline constexpr bool begins_with_context<std::tuple<>> = false;
template <typename First, typename... Rest>
inline constexpr bool begins_with_context<std::tuple<First, Rest...>> =
    std::is_reference_v<First>&& std::same_as<std::remove_cvref_t<First>, ReplicaContext>;

/// Whether a list of parameters, if it is known, has `count` entries.
template <typename Types, size_t count>
inline constexpr bool has_length = true;
template <typename... P, size_t count>
inline constexpr bool has_length<std::tuple<P...>, count> = sizeof...(P) == count;

template <typename...>
inline constexpr bool is_allowed = false;

/// Whether an argument is a module or an optimizer that all replicas would share.
template <typename T>
inline constexpr bool is_shared_object =
    !is_per_replica<std::remove_cvref_t<T>> && StatefulTorchObject<std::remove_cvref_t<T>>;

/// Does not compile. States the first rule of ReplicaFunction that `Fn` breaks.
template <typename Fn, typename... Args>
auto refuse_replica_function() {
  using Given = typename Parameters<Fn>::Types;
  if constexpr ((is_shared_object<Args> || ...)) {
    // replica_view() has stated the rule.
  } else if constexpr (std::invocable<Fn&, ReplicaContext&, ReplicaView<Args>...>) {
    static_assert(
        is_allowed<Fn>,
        "all replicas call one function at the same time, so it cannot be a mutable lambda: keep what it "
        "changes in an object made by strategy.scope()");
  } else if constexpr (std::invocable<const Fn&, ReplicaView<Args>...> || !begins_with_context<Given>) {
    static_assert(is_allowed<Fn>,
                  "a replica function takes ReplicaContext& as its first parameter, such as "
                  "[](ReplicaContext& replica, const Example& batch) {...}");
  } else if constexpr (!has_length<Given, 1 + sizeof...(Args)>) {
    static_assert(
        is_allowed<Fn>,
        "a replica function takes ReplicaContext& and one parameter for each further argument of run()");
  } else if constexpr (std::invocable<const Fn&, ReplicaContext&,
                                      std::remove_cvref_t<ReplicaView<Args>>&...>) {
    static_assert(
        is_allowed<Fn>,
        "a replica function takes constant arguments by const reference, such as const Example&: a batch of "
        "`for (const auto& batch : batches)`, and any argument that all replicas share");
  } else {
    static_assert(
        is_allowed<Fn>,
        "a replica function is called as fn(ReplicaContext&, args...): Mirrored<T> and PerReplica<T> arrive "
        "as T&, and other arguments as const T&");
  }
}

/// Does not compile. States the rule of ScopeFactory that `Factory` breaks.
template <typename Factory>
auto refuse_factory() {
  if constexpr (std::invocable<const Factory&, ReplicaContext&>) {
    static_assert(
        is_allowed<Factory>,
        "a factory for scope() returns a new object by value: through a reference, all replicas would share "
        "one object");
  } else if constexpr (std::invocable<Factory&, ReplicaContext&>) {
    static_assert(is_allowed<Factory>,
                  "a factory for scope() cannot be a mutable lambda: it returns what it makes for a replica, "
                  "and changes nothing of its own");
  } else {
    static_assert(is_allowed<Factory>,
                  "a factory for scope() takes ReplicaContext&, such as [](ReplicaContext& replica) { return "
                  "Model(); }");
  }
}

}  // namespace lockstep::detail
