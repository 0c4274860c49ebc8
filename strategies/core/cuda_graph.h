#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/replicas/replica_function.h"
#include "lockstep/strategies/core/graph_argument.h"
#include "lockstep/strategies/core/graph_schedule.h"

namespace lockstep {

class Strategy;

struct CudaGraphOptions {
  bool enabled = true;   ///< false: run() calls the function, as without a CudaGraph
  int warm_up_runs = 3;  ///< calls in a row that were alike before one is captured; at least 1
};

/// How often a CudaGraph's function was captured, and replayed in place of a call.
struct CudaGraphStatistics {
  int64_t captures = 0;
  int64_t replays = 0;
};

/// A replica function that Strategy::run() captures as CUDA graphs, so that the host launches a step at once
/// instead of kernel by kernel:
///
///     CudaGraph step(train_step);
///     for (auto& batch : batches) strategy.run(step, model, optimizer, batch);
///
/// Results are those of calling it. The first runs do so; then one is captured, and the runs after it are
/// replayed as long as what the host decides is the same: shapes, constants, modules' training flags, where
/// parameters and states lie. A run where it is not, such as an epoch's smaller last batch, calls the
/// function; other constants or shapes that stay are captured in place of the old ones. Replicas on a CPU
/// call it always, and so do workers over NCCL, whose graphs would have to be captured in the same run.
///
/// The whole of the function is one graph over NCCL, and where one replica calls no collective; else
/// collectives on the device, and with them the sums of the gradients, come between graphs.
///
/// What the function takes and gives:
/// - everything is an argument: it is a function, or a lambda without captures;
/// - PerReplica tensors and batches, on their replica's device, are copied to where the graph reads them, and
///   must not be written to;
/// - Mirrored modules, optimizers that are CapturableStep, tensors, GradScaler, metrics, and objects of the
///   user's with `for_each_tensor(visit)` const are read and written where they are: they must change their
///   tensors in place, and keep nothing on the host that a call changes;
/// - anything else is a constant, compared with ==; another tensor is another constant;
/// - results are tensors, or batches or tuples of them (BatchTraits), without history.
/// It must not make the host wait for the device (item(), cpu()), nor draw from generators other than the
/// replica's. Backward, apply_gradients() and a GradScaler's update() belong into the same function. What it
/// prints or counts on the host happens in calls only, and options of modules, such as a dropout's
/// probability, are those of the capture.
///
/// Used by one thread at a time, and destroyed before the strategy that ran it. Another strategy, or
/// arguments of other types, begin anew.
template <typename Fn>
class CudaGraph {
  static_assert(std::is_empty_v<Fn> || std::is_pointer_v<Fn>,
                "a captured function has no state of its own: hand everything to run() as an argument");

 public:
  /// Throws InvalidArgument for less than one warm-up run: what is made at first belongs to no graph.
  explicit CudaGraph(Fn function, const CudaGraphOptions& options = {})
      : function_(std::move(function)), options_(options) {
    detail::check_warm_up(options.warm_up_runs);
  }
  CudaGraph(CudaGraph&&) noexcept = default;
  CudaGraph& operator=(CudaGraph&&) noexcept = default;

  const Fn& function() const { return function_; }
  const CudaGraphOptions& options() const { return options_; }
  const CudaGraphStatistics& statistics() const { return statistics_; }

 private:
  friend class Strategy;

  /// What is kept from run to run of one strategy.
  template <typename Calls>
  Calls& calls(const Strategy& strategy, int num_replicas) {
    if (strategy_ != &strategy || *type_ != typeid(Calls)) {
      calls_ = std::make_shared<Calls>(num_replicas, options_.warm_up_runs);
      strategy_ = &strategy;
      type_ = &typeid(Calls);
    }
    return *std::static_pointer_cast<Calls>(calls_);
  }

  Fn function_;
  CudaGraphOptions options_;
  CudaGraphStatistics statistics_;
  std::shared_ptr<void> calls_;
  const Strategy* strategy_ = nullptr;  // that calls_ are of
  const std::type_info* type_ = nullptr;
};

namespace detail {

/// Something to keep for a function without results.
template <typename R>
using ResultSlot = std::conditional_t<std::is_void_v<R>, std::monostate, R>;

/// A replica's optimizers among the arguments, and for a capture the parameters, which a recording has
/// already.
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

/// The runs of a captured function with results R (void: none) and arguments Args, without references.
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

  /// Adds what a graph would take over of the arguments.
  void describe(Fingerprint& fingerprint, const Args&... args) {
    describe_all(fingerprint, std::index_sequence_for<Args...>(), args...);
    fingerprint.add(num_constants_);
  }

  /// Brings a replica's inputs to where the graph reads them.
  void set_inputs(const ReplicaContext& replica, const Args&... args) {
    set_all(replica, std::index_sequence_for<Args...>(), args...);
  }
  /// New memory for them, before a capture.
  void drop_inputs(int replica) {
    for_each_input([&](auto& copies) { copies[static_cast<size_t>(replica)].reset(); });
  }

  /// `fn` with the inputs' copies. Throws InvalidArgument where it changes one, and for results that are not
  /// on the device.
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

  template <size_t... I>
  void describe_all(Fingerprint& fingerprint, std::index_sequence<I...>, const Args&... args) {
    (describe_one(fingerprint, std::get<I>(slots_), args), ...);
  }
  template <typename A>
  void describe_one(Fingerprint& fingerprint, GraphSlot<A>& slot, const A& argument) {
    if constexpr (GraphInput<A>) {
      describe_input(fingerprint, argument);
    } else if constexpr (GraphState<A>) {
      describe_state(fingerprint, argument);
    } else {
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
  int64_t num_constants_ = 0;  // of different ones that were seen
};

}  // namespace detail
}  // namespace lockstep
