#pragma once

#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {

namespace detail {

template <typename T>
inline constexpr bool is_per_replica = false;
template <typename T>
inline constexpr bool is_per_replica<PerReplica<T>> = true;
template <typename T>
inline constexpr bool is_per_replica<Mirrored<T>> = true;

}  // namespace detail

/// Returns a replica's view of one of run's arguments: its own part of a PerReplica or Mirrored, and a
/// constant reference to anything else.
template <typename T>
decltype(auto) replica_view(T& argument, const ReplicaContext& replica) {
  if constexpr (detail::is_per_replica<std::remove_cvref_t<T>>) {
    return (argument[replica]);
  } else {
    static_assert(
        !StatefulTorchObject<std::remove_cvref_t<T>>,
        "run() would share one module or optimizer between the replicas: make it with strategy.scope()");
    return std::as_const(argument);
  }
}

template <typename T>
using ReplicaView = decltype(replica_view(std::declval<std::remove_reference_t<T>&>(),
                                          std::declval<const ReplicaContext&>()));

/// A function that run() can call on several threads at once: `fn(ReplicaContext&, args...)`. It must be
/// callable as const, which excludes lambdas with mutable state of their own.
template <typename Fn, typename... Args>
concept ReplicaFunction = std::invocable<const Fn&, ReplicaContext&, ReplicaView<Args>...>;

/// A function that scope() can call: `make(ReplicaContext&)` returns a new object by value.
template <typename Factory>
concept ScopeFactory = std::invocable<const Factory&, ReplicaContext&> &&
    std::is_object_v<std::invoke_result_t<const Factory&, ReplicaContext&>>;

template <typename Fn, typename... Args>
using ReplicaResult = std::invoke_result_t<const Fn&, ReplicaContext&, ReplicaView<Args>...>;

/// Returns the sizes of the distributed batch among the arguments. If there are several, returns their sizes
/// if these are equal, else nothing, since the loss might belong to any of them.
template <typename... Args>
std::optional<BatchSizes> find_batch_sizes(const Args&... args) {
  std::optional<BatchSizes> sizes;
  bool alike = true;
  [[maybe_unused]] const auto look = [&](const auto& argument) {
    if constexpr (detail::is_per_replica<std::remove_cvref_t<decltype(argument)>>) {
      if (!sizes) sizes = argument.batch_sizes();
      if (argument.batch_sizes() && *argument.batch_sizes() != *sizes) alike = false;
    }
  };
  (look(args), ...);
  return alike ? sizes : std::nullopt;
}

}  // namespace lockstep
