/// Templates of Strategy::run(), with and without a CudaGraph. strategy.h includes this header.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/replica_function.h"
#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/core/graph_calls.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

template <typename R>
PerReplica<R> Strategy::per_replica(std::vector<std::optional<R>> results) const {
  std::vector<R> values;
  values.reserve(results.size());
  for (auto& result : results) values.push_back(std::move(*result));
  return PerReplica<R>(std::move(values), shared_devices());
}

template <typename Fn, typename... Args>
requires ReplicaFunction<Fn, Args...>
auto Strategy::run(const Fn& fn, Args&&... args) {
  using R = ReplicaResult<Fn, Args...>;
  (check_argument(args), ...);
  const auto sizes = find_batch_sizes(args...);
  if constexpr (std::is_void_v<R>) {
    run_replicas([&](ReplicaContext& replica) { fn(replica, replica_view(args, replica)...); }, sizes);
    (check_mode(args), ...);
  } else {
    static_assert(!std::is_reference_v<R>, "a replica function returns by value");
    std::vector<std::optional<R>> results(static_cast<size_t>(num_local_replicas()));
    run_replicas(
        [&](ReplicaContext& replica) {
          results[static_cast<size_t>(replica.local_replica_id())].emplace(
              fn(replica, replica_view(args, replica)...));
        },
        sizes);
    (check_mode(args), ...);
    return per_replica(std::move(results));
  }
}

template <typename Fn, typename... Args>
requires ReplicaFunction<Fn, Args...>
auto Strategy::run(CudaGraph<Fn>& graph, Args&&... args) {
  using R = ReplicaResult<Fn, Args...>;
  if (!graph.options_.enabled || !has_graphs()) return run(graph.function_, std::forward<Args>(args)...);
  (check_argument(args), ...);
  const auto sizes = find_batch_sizes(args...);
  using Calls = detail::GraphCalls<R, std::remove_cvref_t<Args>...>;
  Calls& calls = graph.template calls<Calls>(*this, num_local_replicas());
  Fingerprint now;
  describe_run(now, sizes);
  calls.describe_constants(now, args...);
  describe_replicas(now,
                    [&](int replica, Fingerprint& own) { Calls::describe_values(own, replica, args...); });
  const GraphUse use = agree_on_graphs(calls.schedule().plan(now));
  calls.schedule().begin(now, use);
  if (use == GraphUse::kCall) return run(graph.function_, std::forward<Args>(args)...);

  std::vector<std::optional<detail::ResultSlot<R>>> results(static_cast<size_t>(num_local_replicas()));
  run_replicas(
      [&](ReplicaContext& replica) {
        const int local = replica.local_replica_id();
        auto& recording = calls.schedule().recording(local);
        auto objects = detail::objects_among(replica, use, args...);
        if (use == GraphUse::kCapture) calls.drop_inputs(local);
        calls.set_inputs(replica, args...);
        if (use == GraphUse::kReplay) {
          replay_call(*recording, objects);
        } else {
          capture_call(replica, recording, objects, [&] { calls.call(graph.function_, replica, args...); });
        }
        if constexpr (!std::is_void_v<R>) results[static_cast<size_t>(local)].emplace(calls.result(replica));
      },
      sizes);
  if (use == GraphUse::kCapture) calls.schedule().end_capture();
  ++(use == GraphUse::kCapture ? graph.statistics_.captures : graph.statistics_.replays);
  if constexpr (!std::is_void_v<R>) return per_replica(std::move(results));
}

}  // namespace lockstep
