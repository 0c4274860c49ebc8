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
#include "lockstep/runtime/replicas/function_rules.h"
#include "lockstep/runtime/replicas/mirror_options.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/runtime/replicas/replica_function.h"
#include "lockstep/runtime/replicas/scope_options.h"
#include "lockstep/strategies/communication/cross_device_ops.h"
#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/core/refused_values.h"
#include "lockstep/strategies/core/strategy_config.h"
#include "lockstep/strategies/core/strategy_extended.h"
#include "lockstep/strategies/core/tensor_structure.h"
#include "lockstep/strategies/input/input_distributor.h"

namespace lockstep {

class ClusterResolver;
class OptimizerGroup;
enum class GraphUse : uint8_t;

/// Runs one training program on any number of replicas.
///
/// scope() and mirror() make one object for each replica, run() calls a function on all replicas at the same
/// time, reduce() and gather() combine their results, and distribute_dataset() (see InputDistributor) cuts
/// batches into shards. Only run() and the datasets call your code from other threads.
///
/// Not thread-safe: call it from one thread at a time. scope(), mirror(), run() and restore_consistency()
/// throw InvalidArgument if this strategy's own replica function or factory calls them. A strategy must
/// outlive everything it made.
///
/// Example:
///
///     MirroredStrategy strategy({"cpu:0", "cpu:1"});
///     auto model = strategy.scope([](ReplicaContext&) { return SimpleCnn(); });
///     auto norm = [](ReplicaContext&, SimpleCnn& net) { return net->parameters()[0].norm(); };
///     auto mean = strategy.reduce(ReduceOp::kMean, strategy.run(norm, model));
class Strategy : public GradientHandler, public InputDistributor {
 public:
  ~Strategy() override;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  const std::string& name() const;
  /// Number of replicas on all machines: those that get different shards of the batch.
  int num_replicas_in_sync() const { return num_replicas_; }
  /// Number of ranks on all machines: the threads that compute, each on a device. Each is a replica, unless
  /// the mesh has axes along which models are cut; see Mesh.
  int num_ranks() const;
  /// Number of this process's ranks. Mirrored and PerReplica values have one value for each of them.
  int num_local_replicas() const;
  /// Number of this process's first rank among all ranks; its others follow.
  int first_local_replica() const { return first_replica_; }
  /// Returns the replica that a local rank belongs to.
  int replica_of(size_t local) const;
  /// Returns whether the local rank is the first of its replica, whose results reduce() and gather() use.
  bool is_first_of_replica(size_t local) const;
  const Devices& devices() const;
  const CrossDeviceOps& cross_device_ops() const;
  /// Returns the mesh of all ranks; see StrategyOptions::mesh.
  const Mesh& mesh() const;
  /// Returns StrategyOptions::sharding, with its axis unless the stage is 0.
  const ShardingOptions& sharding() const;
  /// Returns one number for each replica of all workers, in proportion to which batches are cut from now on;
  /// see StrategyOptions::replica_weights. Returns none for equal pieces. Measured weights change between
  /// runs.
  std::vector<double> replica_weights() const;
  /// Returns one line with the replicas, the cross-device op and why it was chosen.
  std::string describe() const;
  /// Returns null for the strategies of one machine.
  virtual const ClusterResolver* cluster_resolver() const { return nullptr; }
  /// Returns tf.distribute's lower-level calls.
  StrategyExtended extended() { return StrategyExtended(*this); }

  /// Calls `make(replica)` for one replica after another, each from the same random state, and leaves that
  /// state as one call would. Modules (holders or shared_ptr) move to their replica's device and get replica
  /// 0's parameters and buffers. Optimizers (by value or pointer) have their gradients summed from now on.
  /// Tensors get replica 0's values. Other types stay local to their replica.
  ///
  /// Rethrows errors of `make`. Throws InvalidArgument if a module is empty, if the replicas' modules differ
  /// in their registered tensors (name, shape, dtype, requires_grad, sharing) or share memory, or if an
  /// optimizer holds another replica's parameter, one parameter twice, or other shapes than replica 0's.
  /// Throws InvalidArgument for options of modules if `make` returns something else.
  template <ScopeFactory Factory>
  auto scope(const Factory& make, const ScopeOptions& options = {});
  /// Other functions do not compile; the error states the rule.
  template <typename Factory>
  requires(!ScopeFactory<Factory>) auto scope(const Factory&, const ScopeOptions& = {}) {
    return detail::refuse_factory<Factory>();
  }

  /// Clones a finished module onto every device, and leaves it and the random state unchanged. Tensors in
  /// plain members cannot be seen and stay shared: use scope() for such modules, or pass a probe.
  ///
  /// Throws InvalidArgument if the module is empty, does not derive from torch::nn::Cloneable, does not
  /// register its tensors in reset(), or has a clone that differs (see scope()); if a replica's output for
  /// the probe differs; and if a probe is given and forward() does not map one tensor to one tensor.
  template <ModuleLike T>
  Mirrored<T> mirror(const T& module, const MirrorOptions& options = {});

  /// Calls `fn(replica, args...)` on every replica at the same time, each in its own thread, and blocks until
  /// all calls have returned. Mirrored and PerReplica arguments arrive as the replica's own `T&`, all others
  /// as `const T&`. Returns a PerReplica of the results, or nothing if `fn` does.
  ///
  /// If a replica throws, the others are released (see CollectiveAborted), its exception reaches the caller
  /// unchanged, and the strategy stays usable. Only exceptions of LibTorch are replaced: by OutOfMemory and
  /// DeviceFailure, which name the replica, and by an error that names the shard's size if the replica had at
  /// most one example. Throws InconsistentReplicas if an earlier failed run let only some replicas finish a
  /// step, and InvalidArgument if a Mirrored or PerReplica argument has another number of replicas.
  template <typename Fn, typename... Args>
  requires ReplicaFunction<Fn, Args...>
  auto run(const Fn& fn, Args&&... args);

  /// Runs the graph's function, by a call as above or by replaying an earlier one; see CudaGraph. Throws
  /// InvalidArgument if the function or an optimizer's step cannot be captured, with CUDA's reason if it
  /// gives one, and if a batch is not on its replica's device or requires a gradient.
  template <typename Fn, typename... Args>
  requires ReplicaFunction<Fn, Args...>
  auto run(CudaGraph<Fn>& graph, Args&&... args);
  /// Other functions do not compile; the error states the rule.
  template <typename Fn, typename... Args>
  requires(!ReplicaFunction<Fn, Args...>) auto run(const Fn&, Args&&...) {
    return detail::refuse_replica_function<detail::CalledFunction<Fn>, Args...>();
  }

  /// Returns the sum or mean over the replicas, on the first replica's device. If replicas have several
  /// ranks, the value of each replica's first rank counts. Without `axis`, it is unweighted and shapes must
  /// agree. With `axis` (negative: from the end), each value is also reduced over that axis, along which
  /// sizes may differ, and a mean is the sum of sums over the sum of counts:
  /// {[1, 2], [6]} gives 3. The mean of integers is floating-point. Throws InvalidArgument if shapes do not
  /// agree or a value does not have the axis, and OutOfMemory and DeviceFailure naming a replica.
  torch::Tensor reduce(ReduceOp op, const PerReplica<torch::Tensor>& values,
                       std::optional<int64_t> axis = std::nullopt);
  /// The same for a value that all replicas share: its mean is itself, or its mean over `axis`. Throws
  /// InvalidArgument for the sum of several replicas and for an axis that the value does not have.
  torch::Tensor reduce(ReduceOp op, const torch::Tensor& value, std::optional<int64_t> axis = std::nullopt);
  /// The same for numbers, in float64.
  template <typename T>
  requires std::is_arithmetic_v<T>
  double reduce(ReduceOp op, const PerReplica<T>& values) {
    double total = 0;
    for (size_t local = 0; local < values.local_values().size(); ++local)
      total += is_first_of_replica(local) ? static_cast<double>(values.local_values()[local]) : 0;
    return reduce_number(op, total);
  }

  /// Reduces each tensor and number of tuples, vectors, maps and structs (see TensorStructure), without
  /// `axis` in one exchange, and returns a value of the same type. Numbers keep their type. A tensor that is
  /// undefined on all replicas stays undefined. Throws InvalidArgument if a replica's value has other parts
  /// than replica 0's, and for the mean of an integer that is not in a tensor; otherwise as above.
  ///
  ///     auto [loss, hits] = strategy.reduce(ReduceOp::kSum, strategy.run(step, model, batch));
  template <TensorStructure T>
  T reduce(ReduceOp op, const PerReplica<T>& values, std::optional<int64_t> axis = std::nullopt) {
    return detail::with_leaves(values[0], reduce_leaves(op, leaves_of(values), values.devices(), axis));
  }
  /// Other values do not compile; the error states the rule.
  template <typename T>
  requires(!detail::Reducible<T>) auto reduce(ReduceOp, const PerReplica<T>&,
                                              std::optional<int64_t> = std::nullopt) {
    return detail::refuse_reduce<T>();
  }

  /// Concatenates values along `axis` (negative: from the end) in replica order, on the first replica's
  /// device. Throws InvalidArgument for scalars, if a value does not have the axis or other sizes differ, and
  /// OutOfMemory and DeviceFailure naming a replica.
  torch::Tensor gather(const PerReplica<torch::Tensor>& values, int64_t axis = 0);
  /// Concatenates each tensor of tuples, vectors, maps and structs (see TensorStructure), in one exchange,
  /// and returns a value of the same type. Throws InvalidArgument if a replica's value has other parts than
  /// replica 0's, or a number that is not in a tensor; otherwise as above.
  template <TensorStructure T>
  T gather(const PerReplica<T>& values, int64_t axis = 0) {
    return detail::with_leaves(values[0], gather_leaves(leaves_of(values), axis));
  }

  /// Returns one value for each local replica.
  template <typename T>
  std::vector<T> local_results(const PerReplica<T>& values) const {
    return values.local_values();
  }
  template <typename T>
  requires(!detail::is_per_replica<T>) std::vector<T> local_results(const T& value)
  const { return {value}; }

  /// Repairs a failed run: copies parameters, buffers and optimizer state of the replica that finished the
  /// most steps (the first of several) to the others. Buffers that are summed (see BufferAggregation) stay.
  /// Replicas whose last step used a sum that the failure cut off do not count. Call it for each optimizer
  /// that the run stepped. If the optimizer's state is sharded, no replica has another one's part, so none
  /// counts unless all have finished the same steps. Throws InvalidArgument if scope() did not make the
  /// optimizer, and InconsistentReplicas if no replica counts.
  template <typename M, typename O>
  void restore_consistency(Mirrored<M>& model, Mirrored<O>& optimizer) {
    restore_consistency(module_pointers(model.local_values()), optimizer_reference(optimizer.primary()),
                        nullptr);
  }
  /// The same for an optimizer that is stepped with a scaler, whose state is copied as well. Throws
  /// InvalidArgument if such an optimizer comes without its scaler.
  template <typename M, typename O>
  void restore_consistency(Mirrored<M>& model, Mirrored<O>& optimizer, Mirrored<GradScaler>& scaler) {
    check_argument(scaler);
    restore_consistency(module_pointers(model.local_values()), optimizer_reference(optimizer.primary()),
                        &scaler.local_values());
  }

  /// Tells the other workers about an error that ends this worker's part, so that they throw PeerLost with
  /// its first line. Errors of run(), collectives and loops over datasets are reported without it. Does
  /// nothing if there are no other workers.
  void report_failure(const std::exception_ptr& error) const;

  /// Throws ClusterError on every worker if a worker's `lines` differ from worker 0's, naming both workers
  /// and the first line that differs. `what` names what the lines describe, such as "fit". A collective of
  /// the workers; does nothing if there is only one.
  void check_same(const std::string& what, const std::vector<std::string>& lines) const;

  /// Serves another process until the job ends and returns true, on workers of parameter servers. Returns
  /// false at once on all other processes, which run the training loop themselves.
  virtual bool serve() { return false; }
  /// Tells the processes that serve this one that the job has ended. Does nothing if there are none.
  virtual void end() {}

  /// Sums the gradients over the replicas, unscales and clips them, and steps. Subclasses may override it.
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const ApplyOptions& options) override;
  void reduce_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer) override;

  /// Returns the optimizer's bookkeeping, for tests, checkpoints and reports. Throws InvalidArgument if
  /// scope() did not make it.
  std::shared_ptr<OptimizerGroup> optimizer_group(const torch::optim::Optimizer& optimizer) const;

 protected:
  /// Starts one thread for each replica. Throws InvalidArgument without devices, for negative threads of a
  /// replica, and if `config.cross_device_ops` cannot serve the devices; rethrows errors of its
  /// make_channel().
  explicit Strategy(StrategyConfig config);

  /// Hooks for strategies whose parameters live elsewhere, called in the caller's thread, which gets their
  /// errors. They get the modules and optimizers that scope() or mirror() has just made, one for each local
  /// replica. The default makes the tables that wait for their strategy (see ServedTable).
  virtual void on_modules(const std::vector<ModulePointer>& modules);
  virtual void on_optimizers(const std::vector<torch::optim::Optimizer*>& optimizers);
  /// Called before the replica functions of each run.
  virtual void before_run();

  /// Returns the name that the parameter's module gives it. Throws InvalidArgument if scope() and mirror()
  /// made no module with this parameter.
  std::string parameter_name(const torch::Tensor& parameter) const;
  InputPlacement placement() const override;
  /// From now on, replica functions see replicas `first` and following of `num_replicas`, with random streams
  /// that start from `seed`. Their collectives throw InvalidArgument if these are more than exist.
  void number_replicas(int first, int num_replicas, uint64_t seed);

 private:
  friend class StopAgreement;
  friend class StrategyExtended;

  struct Core;
  class Recorder;

  template <typename R>
  PerReplica<R> per_replica(std::vector<std::optional<R>> results) const;
  template <typename T>
  void check_argument(const T& argument) const {
    if constexpr (detail::is_per_replica<T>) check_num_values(argument.local_values().size());
  }
  void check_num_values(size_t count) const;
  template <typename T>
  void check_mode(const Mirrored<T>& model) const {
    if constexpr (ModuleLike<T>) warn_of_training_mode(module_pointer(model.primary()));
  }
  template <typename T>
  void check_mode(const T&) const {}
  /// Warns if gradients are disabled, and the module would compute something else in evaluation mode.
  void warn_of_training_mode(const ModulePointer& module) const;

  void run_factories(const std::function<void(ReplicaContext&)>& make);
  void run_replicas(const std::function<void(ReplicaContext&)>& fn, const std::optional<BatchSizes>& sizes);
  bool has_graphs() const;
  void describe_run(Fingerprint& fingerprint, const std::optional<BatchSizes>& sizes) const;
  void describe_replicas(Fingerprint& fingerprint,
                         const std::function<void(int replica, Fingerprint& own)>& describe) const;
  GraphUse agree_on_graphs(GraphUse plan) const;
  void capture_call(ReplicaContext& replica, std::shared_ptr<GraphRecording>& recording,
                    detail::GraphObjects& objects, const std::function<void()>& call);
  static void replay_call(GraphRecording& recording, const detail::GraphObjects& objects);
  ReplicaPeers replica_peers() const;
  void adopt_modules(const std::vector<ModulePointer>& modules, const ScopeOptions& options);
  [[noreturn]] void refuse_channels_last() const;
  void adopt_tensors(std::vector<torch::Tensor>& tensors) const;
  std::shared_ptr<void> adopt_optimizers(std::vector<torch::optim::Optimizer*> optimizers);
  std::vector<ModulePointer> clone_to_devices(const ModulePointer& module) const;
  void compare_probes(const std::vector<torch::Tensor>& outputs) const;
  [[noreturn]] void refuse_probe() const;
  double reduce_number(ReduceOp op, double local_total) const;
  std::vector<torch::Tensor> counted(const std::vector<torch::Tensor>& of_ranks) const;
  /// By local replica, the tensors and numbers of its value.
  using Leaves = std::vector<std::vector<torch::Tensor>>;
  template <typename T>
  static Leaves leaves_of(const PerReplica<T>& values) {
    Leaves leaves;
    for (const T& value : values.local_values()) leaves.push_back(detail::leaves_of(value));
    return leaves;
  }
  std::vector<torch::Tensor> reduce_leaves(ReduceOp op, const Leaves& leaves,
                                           const PerReplica<torch::Tensor>::Devices& devices,
                                           std::optional<int64_t> axis);
  std::vector<torch::Tensor> gather_leaves(const Leaves& leaves, int64_t axis);
  void restore_consistency(const std::vector<ModulePointer>& modules,
                           const torch::optim::Optimizer& optimizer, std::vector<GradScaler>* scalers);
  std::shared_ptr<const Devices> shared_devices() const;

  std::unique_ptr<Core> core_;
  int num_replicas_ = 1;
  int first_replica_ = 0;  // the first local rank's number among all
};

}  // namespace lockstep

// The bodies of its templates.
#include "lockstep/strategies/core/strategy_run.h"
#include "lockstep/strategies/core/strategy_scope.h"
