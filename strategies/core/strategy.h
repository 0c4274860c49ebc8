#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/replicas/mirror_options.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/runtime/replicas/replica_function.h"
#include "lockstep/strategies/communication/cross_device_ops.h"
#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/core/strategy_config.h"
#include "lockstep/strategies/core/strategy_extended.h"
#include "lockstep/strategies/input/indexed_source.h"
#include "lockstep/strategies/input/sharded_stream.h"
#include "lockstep/strategies/input/stream_source.h"

namespace lockstep {

class ClusterResolver;
class OptimizerGroup;

/// Runs one training program on any number of replicas.
///
/// scope() and mirror() make objects once a replica, run() calls a function on all replicas at the same time,
/// reduce() and gather() bring results together, distribute_dataset() cuts batches into shards. Only run()
/// and the datasets call the user's code from other threads. Calls come from one thread at a time, and not
/// from inside a replica function or a factory: this strategy's own scope(), mirror(), run() and
/// restore_consistency() throw InvalidArgument there, another strategy's do not. A strategy outlives what it
/// made.
class Strategy : public GradientHandler {
 public:
  ~Strategy() override;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  const std::string& name() const;
  /// Over all machines.
  int num_replicas_in_sync() const { return num_replicas_; }
  int num_local_replicas() const;
  /// The id of this process's first replica among all; the others follow it.
  int first_local_replica() const { return first_replica_; }
  const Devices& devices() const;
  const CrossDeviceOps& cross_device_ops() const;
  /// One line: the replicas, the cross-device op and why it was chosen.
  std::string describe() const;
  /// Null: the strategies of one machine belong to no cluster.
  virtual const ClusterResolver* cluster_resolver() const { return nullptr; }
  /// tf.distribute's lower-level calls.
  StrategyExtended extended() { return StrategyExtended(*this); }

  /// Calls `make(replica)` for one replica after another, each from the same random state, and leaves that
  /// state as one call would. Modules (holders or shared_ptr) are moved to their replica's device and get
  /// replica 0's parameters and buffers; optimizers (by value or pointer) have their gradients summed from
  /// now on; tensors get replica 0's values; anything else stays local to its replica.
  ///
  /// Throws what `make` throws, and InvalidArgument for an empty module, for modules whose registered tensors
  /// differ (name, shape, dtype, requires_grad, sharing) or are the same memory, and for optimizers that hold
  /// another replica's parameter, one twice, or other shapes than replica 0's.
  template <typename Factory>
  requires std::invocable<const Factory&, ReplicaContext&>
  auto scope(const Factory& make) {
    using T = std::invoke_result_t<const Factory&, ReplicaContext&>;
    static_assert(!std::is_reference_v<T> && !std::is_void_v<T>, "a factory returns by value");
    std::vector<T> values;
    values.reserve(static_cast<size_t>(num_local_replicas()));
    run_factories([&](ReplicaContext& replica) { values.push_back(make(replica)); });
    std::shared_ptr<void> attachment;
    if constexpr (ModuleLike<T>) {
      adopt_modules(module_pointers(values));
    } else if constexpr (OptimizerLike<T>) {
      std::vector<torch::optim::Optimizer*> optimizers;
      for (auto& value : values) optimizers.push_back(&optimizer_reference(value));
      attachment = adopt_optimizers(std::move(optimizers));
    } else if constexpr (std::is_same_v<T, torch::Tensor>) {
      adopt_tensors(values);
    }
    return Mirrored<T>(std::move(values), shared_devices(), std::move(attachment), average_buffers());
  }

  /// Clones a finished module onto every device, and leaves it and the random state as they were. Tensors in
  /// plain members cannot be seen and stay shared: use scope() for such modules, or a probe.
  ///
  /// Throws InvalidArgument for an empty module; for one that does not derive from torch::nn::Cloneable and
  /// register its tensors in reset(), or whose clone registers others (as scope()); where a replica's output
  /// for the probe differs; and for a probe where forward does not take and give one tensor.
  template <ModuleLike T>
  Mirrored<T> mirror(const T& module, const MirrorOptions& options = {}) {
    std::vector<T> copies;
    for (auto& copy : clone_to_devices(module_pointer(module))) {
      if constexpr (ModuleHolderLike<T>) {
        copies.push_back(T(std::dynamic_pointer_cast<typename T::ContainedType>(copy)));
      } else {
        copies.push_back(std::dynamic_pointer_cast<typename T::element_type>(copy));
      }
    }
    if constexpr (requires(T & m, torch::Tensor x) {
                    { m->forward(x) } -> std::convertible_to<torch::Tensor>;
                  }) {
      if (options.probe.defined()) {
        T original = module;
        std::vector<torch::Tensor> outputs{detail::probe(*original, options.probe)};
        for (auto& copy : copies) outputs.push_back(detail::probe(*copy, options.probe));
        compare_probes(outputs);
      }
    } else if (options.probe.defined()) {
      refuse_probe();
    }
    adopt_modules(module_pointers(copies));
    return Mirrored<T>(std::move(copies), shared_devices(), nullptr, average_buffers());
  }

  /// Calls `fn(replica, args...)` on every replica at the same time, each in its own thread, and blocks until
  /// all have returned. Mirrored and PerReplica arguments arrive as the replica's own `T&`, anything else as
  /// `const T&`.
  ///
  /// The first exception of any replica reaches the caller unchanged, the others are released (see
  /// CollectiveAborted) and the strategy stays usable. Only LibTorch's are replaced: by OutOfMemory and
  /// DeviceFailure, which name the replica, and where the failing replica had a shard of at most one example
  /// by one that says so. Throws InconsistentReplicas where an earlier
  /// failed run let only some replicas finish a step, InvalidArgument for a Mirrored or PerReplica argument
  /// of another number of replicas.
  template <typename Fn, typename... Args>
  requires ReplicaFunction<Fn, Args...>
  auto run(const Fn& fn, Args&&... args) {
    using R = ReplicaResult<Fn, Args...>;
    (check_argument(args), ...);
    const auto sizes = find_batch_sizes(args...);
    if constexpr (std::is_void_v<R>) {
      run_replicas([&](ReplicaContext& replica) { fn(replica, replica_view(args, replica)...); }, sizes);
    } else {
      static_assert(!std::is_reference_v<R>, "a replica function returns by value");
      std::vector<std::optional<R>> results(static_cast<size_t>(num_local_replicas()));
      run_replicas(
          [&](ReplicaContext& replica) {
            results[static_cast<size_t>(replica.local_replica_id())].emplace(
                fn(replica, replica_view(args, replica)...));
          },
          sizes);
      return per_replica(std::move(results));
    }
  }

  /// Runs the graph's function: by a call as above, or by the replay of an earlier one. See CudaGraph. Throws
  /// InvalidArgument where the function cannot be captured, saying why as far as CUDA does; for an optimizer
  /// whose steps cannot be; and for batches that are not on their replica's device or require a gradient.
  template <typename Fn, typename... Args>
  requires ReplicaFunction<Fn, Args...>
  auto run(CudaGraph<Fn>& graph, Args&&... args) {
    using R = ReplicaResult<Fn, Args...>;
    if (!graph.options_.enabled || !has_graphs()) return run(graph.function_, std::forward<Args>(args)...);
    (check_argument(args), ...);
    const auto sizes = find_batch_sizes(args...);
    using Calls = detail::GraphCalls<R, std::remove_cvref_t<Args>...>;
    Calls& calls = graph.template calls<Calls>(*this, num_local_replicas());
    Fingerprint now;
    describe_run(now, sizes);
    calls.describe(now, args...);
    const bool may_replay = compare_graphs(now, calls.schedule().is_ready());
    const GraphUse use = calls.schedule().next(now, may_replay);
    if (use == GraphUse::kCall) return run(graph.function_, std::forward<Args>(args)...);
    if (use == GraphUse::kCapture) calls.schedule().begin_capture();

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
          if constexpr (!std::is_void_v<R>)
            results[static_cast<size_t>(local)].emplace(calls.result(replica));
        },
        sizes);
    if (use == GraphUse::kCapture) calls.schedule().end_capture();
    ++(use == GraphUse::kCapture ? graph.statistics_.captures : graph.statistics_.replays);
    if constexpr (!std::is_void_v<R>) return per_replica(std::move(results));
  }

  /// The sum or mean over the replicas, on the first replica's device. Without an axis: unweighted, shapes
  /// must agree; a sole replica's value is returned as it is. With one: each value is reduced over that axis
  /// too, sizes may differ there, and a mean is the sum of sums over the sum of counts, so that {[1, 2], [6]}
  /// gives 3. Negative axes count from the end. A mean that divides integers is floating-point. Throws
  /// InvalidArgument for shapes that do not agree and for an axis that a value does not have, OutOfMemory and
  /// DeviceFailure naming a replica.
  torch::Tensor reduce(ReduceOp op, const PerReplica<torch::Tensor>& values,
                       std::optional<int64_t> axis = std::nullopt);
  /// A value that every replica shares: its mean is itself, over `axis` where one is given; a sum with
  /// several replicas throws InvalidArgument, as does an axis that the value does not have.
  torch::Tensor reduce(ReduceOp op, const torch::Tensor& value, std::optional<int64_t> axis = std::nullopt);
  /// Numbers, by float64.
  template <typename T>
  requires std::is_arithmetic_v<T>
  double reduce(ReduceOp op, const PerReplica<T>& values) {
    double total = 0;
    for (const T& value : values.local_values()) total += static_cast<double>(value);
    return reduce_number(op, total);
  }

  /// Concatenates along `axis` (negative: from the end) in replica order, on the first replica's device.
  /// Throws InvalidArgument for scalars, for an axis that a value does not have, and for sizes that differ
  /// elsewhere, OutOfMemory and DeviceFailure naming a replica.
  torch::Tensor gather(const PerReplica<torch::Tensor>& values, int64_t axis = 0);

  /// A value per local replica.
  template <typename T>
  std::vector<T> local_results(const PerReplica<T>& values) const {
    return values.local_values();
  }
  template <typename T>
  requires(!detail::is_per_replica<T>) std::vector<T> local_results(const T& value)
  const { return {value}; }

  /// `make(ValueContext)` once for each local replica, in the caller's thread.
  template <typename Fn>
  requires std::invocable<const Fn&, const ValueContext&>
  auto distribute_values_from_function(const Fn& make) const {
    std::vector<std::invoke_result_t<const Fn&, const ValueContext&>> values;
    for (int replica = 0; replica < num_local_replicas(); ++replica) {
      values.push_back(make(ValueContext{first_replica_ + replica, num_replicas_}));
    }
    return PerReplica(std::move(values), shared_devices());
  }

  /// Cuts a dataset with size() and get_batch() into global batches, and each into the replicas' shards. See
  /// DistributedDataset. Throws InvalidArgument for a batch size below 1, a negative prefetch, less than one
  /// worker, and a dataset that does not know its size.
  template <IndexedDataset D>
  auto distribute_dataset(D dataset, const DistributeOptions& options) const {
    return make_distributed_dataset(std::move(dataset), options, placement());
  }

  /// The same for streams: `make(InputContext)` gives this process's, a StreamedDataset by value or by
  /// pointer, anew for each epoch. Its batches of up to `context.batch_size` examples are cut into the
  /// replicas' shards, and AutoShardPolicy says which of them a worker reads. By kData batches and their
  /// order are the same for every number of replicas and workers; streams that turn out to differ between
  /// workers throw ClusterError out of the loop, as far as the sizes of their batches show it. Otherwise
  /// workers whose streams end before others' take part with empty shards.
  ///
  /// A collective of the workers, as loops over it are. `make` and its streams are called by one thread at a
  /// time: a background one, or the loop's own without prefetch. What they throw comes out of the loop, in
  /// its place. Throws what stream_sharding_of() does, and InvalidArgument for a negative prefetch.
  template <typename Fn>
  requires std::invocable<const Fn&, const InputContext&>
  auto distribute_dataset(const Fn& make, const DistributeStreamOptions& options) const {
    return make_sharded_stream(make, options, placement());
  }

  /// `make(InputContext)` gives this process's pipeline, anew for each epoch: a callable
  /// `std::optional<Batch>()`, or a pointer to something with begin() and end() such as a torch::data loader.
  /// Nothing is cut: each replica takes one of its batches a step; replicas that get none in the last step
  /// have an empty shard.
  ///
  /// `make` and its pipelines are called by one thread at a time: a background one, or the loop's own without
  /// prefetch. What they throw comes out of the loop, in its place. Throws InvalidArgument for a negative
  /// prefetch.
  template <typename Fn>
  requires std::invocable<const Fn&, const InputContext&>
  auto distribute_datasets_from_function(const Fn& make, const StreamOptions& options = {}) const {
    return make_distributed_stream(make, options, placement());
  }

  /// After a failed run: copies parameters, buffers and the optimizer's state of the replica that finished
  /// the most steps (the first of several) to the others. A replica whose last step used a sum that the
  /// failure cut off, which can be where devices work behind the host, is none of them. Throws
  /// InvalidArgument for an optimizer that scope did not make, InconsistentReplicas where that is so on all
  /// replicas. Each optimizer that was stepped in the run needs a call of its own.
  template <typename M, typename O>
  void restore_consistency(Mirrored<M>& model, Mirrored<O>& optimizer) {
    restore_consistency(module_pointers(model.local_values()), optimizer_reference(optimizer.primary()),
                        nullptr);
  }
  /// The same for an optimizer that is stepped with a scaler, whose state is copied too. It must be given
  /// then: without it, throws InvalidArgument.
  template <typename M, typename O>
  void restore_consistency(Mirrored<M>& model, Mirrored<O>& optimizer, Mirrored<GradScaler>& scaler) {
    check_argument(scaler);
    restore_consistency(module_pointers(model.local_values()), optimizer_reference(optimizer.primary()),
                        &scaler.local_values());
  }

  /// Tells the other workers of an error that ends this one's part, for them to throw PeerLost with its first
  /// line; else they learn that it ended early, and not why. What run(), a collective or the loop over a
  /// dataset throws they are told without it. Does nothing where there are no others.
  void report_failure(const std::exception_ptr& error) const;

  /// The part of a process that computes for another one, as workers of parameter servers do: blocks until
  /// the job ends, and returns true. Here, where each process has a loop of its own, false at once.
  virtual bool serve() { return false; }
  /// At the end of the job: tells so to those that serve it. Here there are none.
  virtual void end() {}

  /// The default handling of gradients: sum over the replicas, unscale, clip, step. Subclasses may override
  /// it.
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const ApplyOptions& options) override;
  void reduce_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer) override;

  /// This optimizer's bookkeeping, for tests, checkpoints and reports; throws InvalidArgument if scope did
  /// not make it.
  std::shared_ptr<OptimizerGroup> optimizer_group(const torch::optim::Optimizer& optimizer) const;

 protected:
  /// Starts a thread a replica. Throws InvalidArgument without devices, for negative threads a replica, or
  /// where `config.cross_device_ops` cannot serve the devices; and what its make_channel() throws.
  explicit Strategy(StrategyConfig config);

  /// What a strategy does whose parameters live elsewhere; here nothing, but that tables which wait for their
  /// strategy (see ServedTable) are made. Each is called in the caller's thread, and what it throws reaches
  /// the caller. Modules and optimizers are those that scope() or mirror() has just made, one for each local
  /// replica.
  virtual void on_modules(const std::vector<ModulePointer>& modules);
  virtual void on_optimizers(const std::vector<torch::optim::Optimizer*>& optimizers);
  /// Before the replica functions of a run are called.
  virtual void before_run();

  /// As the parameter's module names it. Throws InvalidArgument for a parameter of no module that scope() or
  /// mirror() has made.
  std::string parameter_name(const torch::Tensor& parameter) const;
  /// Of this process's replicas.
  InputPlacement placement() const;
  /// In the runs from now on the replica functions see replicas `first` and those after it of `num_replicas`,
  /// whose random streams begin anew by `seed`. Where these are more than there are, collectives of the
  /// replica functions throw InvalidArgument.
  void number_replicas(int first, int num_replicas, uint64_t seed);

 private:
  friend class StopAgreement;
  friend class StrategyExtended;

  template <typename R>
  PerReplica<R> per_replica(std::vector<std::optional<R>> results) const {
    std::vector<R> values;
    values.reserve(results.size());
    for (auto& result : results) values.push_back(std::move(*result));
    return PerReplica<R>(std::move(values), shared_devices());
  }

  template <typename T>
  void check_argument(const T& argument) const {
    if constexpr (detail::is_per_replica<T>) check_num_values(argument.local_values().size());
  }
  void check_num_values(size_t count) const;

  void run_factories(const std::function<void(ReplicaContext&)>& make);
  void run_replicas(const std::function<void(ReplicaContext&)>& fn, const std::optional<BatchSizes>& sizes);
  bool has_graphs() const;
  void describe_run(Fingerprint& fingerprint, const std::optional<BatchSizes>& sizes) const;
  bool compare_graphs(Fingerprint& now, bool is_ready) const;
  void capture_call(ReplicaContext& replica, std::shared_ptr<GraphRecording>& recording,
                    detail::GraphObjects& objects, const std::function<void()>& call);
  static void replay_call(GraphRecording& recording, const detail::GraphObjects& objects);
  /// What Mirrored::eval() calls.
  std::function<void(const std::vector<ModulePointer>&)> average_buffers() const;
  void adopt_modules(const std::vector<ModulePointer>& modules);
  void adopt_tensors(std::vector<torch::Tensor>& tensors) const;
  std::shared_ptr<void> adopt_optimizers(std::vector<torch::optim::Optimizer*> optimizers);
  std::vector<ModulePointer> clone_to_devices(const ModulePointer& module) const;
  void compare_probes(const std::vector<torch::Tensor>& outputs) const;
  [[noreturn]] void refuse_probe() const;
  double reduce_number(ReduceOp op, double local_total) const;
  void restore_consistency(const std::vector<ModulePointer>& modules,
                           const torch::optim::Optimizer& optimizer, std::vector<GradScaler>* scalers);
  std::shared_ptr<const Devices> shared_devices() const;

  struct Core;
  class Recorder;
  std::unique_ptr<Core> core_;
  int num_replicas_ = 1;
  int first_replica_ = 0;  // the first local replica's id among all
};

}  // namespace lockstep
