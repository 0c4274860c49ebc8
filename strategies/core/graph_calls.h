/// Calls of a captured function. strategy_run.h uses this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/replicas/replica_function.h"
#include "lockstep/strategies/core/graph_argument.h"
#include "lockstep/strategies/core/graph_schedule.h"

namespace lockstep {
namespace detail {

/// Placeholder result of a function that returns void.
template <typename R>
using ResultSlot = std::conditional_t<std::is_void_v<R>, std::monostate, R>;

/// Returns a replica's optimizers among the arguments and, for a capture, its parameters; a recording has
/// these already.
template <typename... Given>
GraphObjects objects_among(const ReplicaContext& replica, GraphUse use, Given&... args) {
  GraphObjects objects;
  [[maybe_unused]] const auto look = [&](auto& argument) {
    if constexpr (GraphState<std::remove_cvref_t<decltype(argument)>>) {
      objects.add_optimizers(argument[replica]);
      if (use == GraphUse::kCapture) objects.add_parameters(argument[replica]);
    }
  };
  (look(args), ...);
  return objects;
}

/// Calls of a captured function with results R (may be void) and arguments Args, without references.
template <typename R, typename... Args>
class GraphCalls {
  static_assert(((GraphInput<Args> || GraphState<Args> || GraphConstant<Args>)&&...),
                "an argument of a captured function is a constant that can be compared, tensors, or state "
                "with for_each_tensor()");
  static_assert(std::is_void_v<R> || HasTensors<R>,
                "a captured function gives tensors: anything else would stay as it was at the capture");

 public:
  GraphCalls(int num_replicas, int warm_up_runs)
      : schedule_(num_replicas, warm_up_runs), results_(static_cast<size_t>(num_replicas)) {
    for_each_input([&](auto& copies) { copies.resize(static_cast<size_t>(num_replicas)); });
  }

  GraphSchedule& schedule() { return schedule_; }

  /// Adds everything that a graph would take from the arguments of all replicas alike.
  void describe_constants(Fingerprint& fingerprint, const Args&... args) {
    find_constants(std::index_sequence_for<Args...>(), args...);
    fingerprint.add(num_constants_);
  }
  /// Adds everything that a graph would take from one replica's values of the arguments. Thread-safe.
  static void describe_values(Fingerprint& fingerprint, [[maybe_unused]] int replica, const Args&... args) {
    (describe_one(fingerprint, static_cast<size_t>(replica), args), ...);
  }

  /// Copies a replica's inputs to where the graph reads them.
  void set_inputs(const ReplicaContext& replica, const Args&... args) {
    set_all(replica, std::index_sequence_for<Args...>(), args...);
  }
  /// Drops the copies of a replica's inputs, so that a capture gets new memory.
  void drop_inputs(int replica) {
    for_each_input([&](auto& copies) { copies[static_cast<size_t>(replica)].reset(); });
  }

  /// Calls `fn` with the inputs' copies. Throws InvalidArgument if it changes one, and for results that are
  /// not on the replica's device.
  template <typename Fn, typename... Given>
  void call(const Fn& fn, ReplicaContext& replica, Given&... args) {
    const auto before = input_versions(replica);
    call_all(fn, replica, std::index_sequence_for<Args...>(), args...);
    if (input_versions(replica) != before) refuse_changed_input();
    if constexpr (!std::is_void_v<R>) {
      BatchTraits<R>::for_each_tensor(
          std::as_const(*results_[static_cast<size_t>(replica.local_replica_id())]),
          [&](const torch::Tensor& tensor) { check_result(tensor, replica.device()); });
    }
  }

  auto result(const ReplicaContext& replica) const requires(!std::is_void_v<R>) {
    return with_copied_tensors(*results_[static_cast<size_t>(replica.local_replica_id())]);
  }

 private:
  template <typename Visit>
  void for_each_input(const Visit& visit) {
    const auto look = [&](auto& slot) {
      if constexpr (!std::is_same_v<decltype(slot.input), std::monostate>) visit(slot.input);
    };
    std::apply([&](auto&... slot) { (look(slot), ...); }, slots_);
  }

  template <typename A>
  static void describe_one(Fingerprint& fingerprint, size_t replica, const A& argument) {
    if constexpr (GraphInput<A>) {
      describe_input(fingerprint, argument, replica);
    } else if constexpr (GraphState<A>) {
      describe_state(fingerprint, argument, replica);
    }
  }

  template <size_t... I>
  void find_constants(std::index_sequence<I...>, const Args&... args) {
    (find_constant(std::get<I>(slots_), args), ...);
  }
  template <typename A>
  void find_constant(GraphSlot<A>& slot, const A& argument) {
    if constexpr (!GraphInput<A> && !GraphState<A>) {
      if constexpr (std::same_as<A, torch::Tensor>) {
        if (slot.constant && slot.constant->is_same(argument)) return;
      } else {
        if (slot.constant && *slot.constant == argument) return;
      }
      slot.constant.emplace(argument);
      ++num_constants_;
    }
  }

  template <size_t... I>
  void set_all(const ReplicaContext& replica, std::index_sequence<I...>, const Args&... args) {
    (set_one(replica, std::get<I>(slots_), args), ...);
  }
  template <typename A>
  void set_one(const ReplicaContext& replica, GraphSlot<A>& slot, const A& argument) {
    if constexpr (GraphInput<A>) {
      auto& copy = slot.input[static_cast<size_t>(replica.local_replica_id())];
      if (copy) {
        copy_tensors(*copy, argument[replica]);
      } else {
        copy.emplace(with_copied_tensors(argument[replica]));
      }
    }
  }

  template <typename Fn, size_t... I, typename... Given>
  void call_all(const Fn& fn, ReplicaContext& replica, std::index_sequence<I...>, Given&... args) {
    if constexpr (std::is_void_v<R>) {
      fn(replica, view(replica, std::get<I>(slots_), args)...);
    } else {
      results_[static_cast<size_t>(replica.local_replica_id())].emplace(
          fn(replica, view(replica, std::get<I>(slots_), args)...));
    }
  }
  template <typename A, typename Given>
  decltype(auto) view(const ReplicaContext& replica, GraphSlot<A>& slot, Given& argument) {
    if constexpr (GraphInput<A>) {
      auto& copy = *slot.input[static_cast<size_t>(replica.local_replica_id())];
      if constexpr (std::is_const_v<Given>) {
        return std::as_const(copy);
      } else {
        return (copy);
      }
    } else {
      return replica_view(argument, replica);
    }
  }

  std::vector<int64_t> input_versions(const ReplicaContext& replica) {
    std::vector<int64_t> versions;
    for_each_input([&](auto& copies) {
      const auto& batch = *copies[static_cast<size_t>(replica.local_replica_id())];
      BatchTraits<std::remove_cvref_t<decltype(batch)>>::for_each_tensor(
          batch, [&](const torch::Tensor& tensor) { versions.push_back(version_of(tensor)); });
    });
    return versions;
  }

  GraphSchedule schedule_;
  std::tuple<GraphSlot<Args>...> slots_;
  std::vector<std::optional<ResultSlot<R>>> results_;
  int64_t num_constants_ = 0;  // number of different constants seen so far
};

}  // namespace detail
}  // namespace lockstep
