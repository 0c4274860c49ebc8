#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/runtime/replicas/value_kind.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/parallel/parallel_plan.h"

namespace lockstep {

struct CheckParallelizedOptions {
  /// Largest difference from a tensor of the whole module, relative to the tensor's largest value, or for
  /// gradients to 0.01 of the largest of all gradients if that is more.
  double tolerance = 1e-4;
};

namespace detail {

/// A module, whole and parallelized, with equal values.
class ParallelizedPair : public torch::nn::Module {
 public:
  using Forward = std::function<torch::Tensor(ReplicaContext&)>;

  ParallelizedPair(const ReplicaAxis& axis, const ParallelPlan& plan,
                   std::shared_ptr<torch::nn::Module> whole, std::shared_ptr<torch::nn::Module> parallelized);
  /// Computes both and throws for the first difference.
  void compare(ReplicaContext& replica, const Forward& forward_whole, const Forward& forward_parallelized,
               const CheckParallelizedOptions& options);

 private:
  std::string axis_;
  std::shared_ptr<torch::nn::Module> whole_;
  std::shared_ptr<torch::nn::Module> parallelized_;
};

/// Holds the module of both, for its forward, and the pair.
template <typename Model>
struct PairOfModels : ParallelizedPair {
  PairOfModels(const ReplicaAxis& axis, const ParallelPlan& plan, Model first, Model second)
      : ParallelizedPair(axis, plan, module_pointer(first), module_pointer(second)),
        whole(std::move(first)),
        parallelized(std::move(second)) {}
  Model whole;
  Model parallelized;
};

/// Calls `make` with random numbers that are the same on all ranks, and leaves the process's as they were.
void with_equal_random_numbers(const std::function<void()>& make);

}  // namespace detail

/// Compares a module that parallelize() cuts with the whole module: the inputs and outputs of its linear
/// layers, embeddings and layer norms in the order of their calls, the result, and the gradients of all
/// parameters. Call it before a training, with a small input: a plan that misses a layer may give wrong
/// results without an error.
///
/// `make(replica)` makes the module, and is called twice on each rank. `forward(replica, module)` returns a
/// tensor that is whole on all ranks, such as losses, computed from the same input on all ranks along the
/// axis. Both modules are in evaluation mode. Blocks; a collective of all workers. Throws InvalidArgument as
/// parallelize() does, and for a difference, with the name of the first layer or parameter that differs.
///
/// Example:
///
///     check_parallelized(
///         strategy, "tensor", plan, [](ReplicaContext&) { return Encoder(); },
///         [&](ReplicaContext&, Encoder& encoder) { return encoder->forward(sample); });
template <typename Make, typename Forward>
void check_parallelized(Strategy& strategy, const std::string& axis, const ParallelPlan& plan,
                        const Make& make, const Forward& forward,
                        const CheckParallelizedOptions& options = {}) {
  using Model = std::invoke_result_t<const Make&, ReplicaContext&>;
  static_assert(ModuleLike<Model>, "check_parallelized() takes a function that makes a module");
  using Pair = detail::PairOfModels<Model>;
  auto pairs = strategy.scope([&](ReplicaContext& replica) {
    std::shared_ptr<Pair> pair;
    detail::with_equal_random_numbers([&] {
      Model whole = make(replica);
      pair = std::make_shared<Pair>(replica.axis(axis), plan, std::move(whole), make(replica));
    });
    return pair;
  });
  strategy.run(
      [&](ReplicaContext& replica, std::shared_ptr<Pair>& pair) {
        pair->compare(
            replica, [&](ReplicaContext& own) { return forward(own, pair->whole); },
            [&](ReplicaContext& own) { return forward(own, pair->parallelized); }, options);
      },
      pairs);
}

}  // namespace lockstep
