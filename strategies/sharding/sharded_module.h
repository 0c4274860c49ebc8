#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/gathered_units.h"
#include "lockstep/strategies/sharding/unit_options.h"

namespace lockstep {

class ShardedUnit;
class UnitCall;

namespace detail {

/// A call of a sharded unit. If it is destroyed without end(), forward has thrown.
class ShardedForward {
 public:
  explicit ShardedForward(std::shared_ptr<UnitCall> call) : call_(std::move(call)) {}
  std::vector<torch::Tensor> watch(std::vector<torch::Tensor> inputs);
  std::vector<torch::Tensor> end(std::vector<torch::Tensor> results);

 private:
  std::shared_ptr<UnitCall> call_;
};

/// Whether a unit may pass on an argument's tensors as others with the same values: if the argument is a
/// tensor, or tensors that the function cannot write to.
template <typename Arg>
inline constexpr bool has_inputs = std::same_as<std::remove_cvref_t<Arg>, torch::Tensor> ||
                                   (is_tensor_structure<std::remove_cvref_t<Arg>> &&
                                    !(std::is_lvalue_reference_v<Arg> &&
                                      !std::is_const_v<std::remove_reference_t<Arg>>));

/// Holds an argument: a copy of tensors, a reference to anything else.
template <typename Arg>
using UnitArgument = std::conditional_t<has_inputs<Arg>, std::remove_cvref_t<Arg>, Arg&&>;

}  // namespace detail

class ShardedModule;

/// Base of modules that have sharded units, whose parameters are cut already.
///
/// Example:
///
///     for (const auto& module : model->modules()) {
///       if (auto* owner = dynamic_cast<HasShardedUnits*>(module.get())) count +=
///       owner->sharded_units().size();
///     }
class HasShardedUnits {
 public:
  virtual ~HasShardedUnits() = default;
  virtual std::vector<ShardedModule*> sharded_units() = 0;
  /// Sets the units' names in errors, for a module of this name.
  virtual void name_units(const std::string& name) = 0;
};

/// A unit of a model whose parameters are cut over the ranks that train it (ZeRO stage 3): each rank keeps an
/// equal part, and holds whole parameters only while the unit computes. Sharded<Block> is a unit around a
/// block; use this class for units whose function you call yourself.
///
/// Parameters and buffers have the names that they have in the block. Each parameter is this rank's part of
/// it: one-dimensional, in the order of memory, of any length including 0; sharded_parameter_of() tells its
/// place. What trains the model, such as an optimizer, holds these. Buffers are the block's own.
///
/// Gradients of the parts are sums over all ranks. Several uses of a unit in a forward add up.
///
/// Example:
///
///     torch::nn::Linear layer(1024, 1024);
///     const UnitOptions options = along(replica.axis("data"));
///     auto unit = std::make_shared<ShardedModule>(layer.ptr(), options);
///     // In a run, after scope() returned a module in which `unit` is registered:
///     auto y = unit->call([&](const torch::Tensor& x) { return layer->forward(x).relu(); }, x);
class ShardedModule : public torch::nn::Module,
                      public ReplicaBound,
                      public AggregatesBuffers,
                      public HasShardedUnits {
 public:
  /// Cuts the parameters of `block`, and frees them. All ranks give a block with the same values. Units
  /// inside it stay units. Throws InvalidArgument for options out of range, and naming the parameter or
  /// module that cannot be cut.
  ShardedModule(std::shared_ptr<torch::nn::Module> block, UnitOptions options);
  ~ShardedModule() override;

  /// Returns `function(args...)` with whole parameters, for a function that computes with the block's. Blocks
  /// until all ranks have called it; the same holds for its backward. Without gradients
  /// (torch::NoGradGuard), only the call is a collective.
  ///
  /// Return whatever has a gradient from the function: parameters are whole in backward only for what it
  /// returns, a tensor or a TensorStructure. In-place changes of a tensor argument are seen as usual.
  ///
  /// Throws InvalidArgument outside a run of the strategy or in another replica's thread, if there are
  /// several ranks, and if the function changes a parameter. Throws as collectives do, naming the unit. After
  /// an error, the parameters are free. Backward throws InvalidArgument if a parameter was changed since, and
  /// with create_graph.
  template <typename Fn, typename... Args>
  auto call(const Fn& function, Args&&... args) {
    using Result = std::invoke_result_t<const Fn&, detail::UnitArgument<Args>&...>;
    static_assert(
        std::same_as<std::remove_cvref_t<Result>, torch::Tensor> ||
            TensorStructure<std::remove_cvref_t<Result>>,
        "A sharded unit returns a tensor or a TensorStructure, such as a tuple or vector of tensors");
    detail::ShardedForward forward = begin();
    std::tuple<detail::UnitArgument<Args>...> arguments(std::forward<Args>(args)...);
    watch_inputs(forward, arguments, std::index_sequence_for<Args...>());
    std::remove_cvref_t<Result> result =
        std::apply([&](auto&... own) { return function(own...); }, arguments);
    const auto tensors = forward.end(detail::tensors_of(result));
    size_t next = 0;
    detail::set_tensors(result, tensors, next);
    return result;
  }

  /// Returns copies of the whole parameters, by name. A collective.
  torch::OrderedDict<std::string, torch::Tensor> whole_parameters();

  /// Returns whether the unit gathers the parameter that this is a shard of. It does not gather what layers
  /// of the block have cut themselves, such as experts.
  bool gathers(const torch::Tensor& shard) const;

  /// Frees this rank's parts of the parameters, for a unit that other ranks alone compute with: parts become
  /// empty. All ranks along the unit's axis call it. The unit cannot be called any more.
  void give_up();

  const UnitOptions& unit_options() const;
  /// Returns how many ranks share the memory of the gathered parameters: those of the same process on CPUs.
  /// It is known from the first gather on, and 1 before.
  int num_sharing() const;
  /// Returns the replica's counter; null before it belongs to a replica.
  std::shared_ptr<GatheredUnits> gathered_units() const;

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override;
  void train(bool on = true) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  BufferAggregation buffer_aggregation(const std::string& name) const override;
  /// Follows parameters that their modules have moved. to() calls it.
  void follow_parameters();
  std::vector<ShardedModule*> sharded_units() override { return {this}; }
  void name_units(const std::string& name) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  detail::ShardedForward begin();

  template <typename Arguments, size_t... I>
  static void watch_inputs(detail::ShardedForward& forward, Arguments& arguments, std::index_sequence<I...>) {
    std::vector<torch::Tensor> inputs;
    const auto append = [&]<typename Arg>(Arg& argument, auto is_input) {
      if constexpr (is_input) detail::append_tensors(argument, inputs);
    };
    (append(std::get<I>(arguments), IsInput<std::tuple_element_t<I, Arguments>>()), ...);
    inputs = forward.watch(std::move(inputs));
    size_t next = 0;
    const auto set = [&]<typename Arg>(Arg& argument, auto is_input) {
      if constexpr (is_input) detail::set_tensors(argument, inputs, next);
    };
    (set(std::get<I>(arguments), IsInput<std::tuple_element_t<I, Arguments>>()), ...);
  }
  template <typename Held>
  using IsInput = std::bool_constant<!std::is_reference_v<Held>>;

  std::shared_ptr<torch::nn::Module> block_;
  std::shared_ptr<ShardedUnit> unit_;
  std::vector<std::pair<torch::Tensor, ShardedParameter>> others_;  // shards that it does not gather
};

/// Gives each sharded unit in `model` its name in the model, for errors.
void name_sharded_units(const torch::nn::Module& model);

}  // namespace lockstep
