#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "lockstep/strategies/core/graph_argument.h"

namespace lockstep {

class Strategy;

struct CudaGraphOptions {
  bool enabled = true;   ///< If false, run() calls the function as it does without a CudaGraph.
  int warm_up_runs = 3;  ///< Number of equal calls in a row before one is captured; at least 1.
};

/// Counts how often a CudaGraph's function was captured, and replayed in place of a call.
struct CudaGraphStatistics {
  int64_t captures = 0;
  int64_t replays = 0;
};

/// A replica function that Strategy::run() captures as CUDA graphs, so that the host launches a whole step at
/// once instead of kernel by kernel.
///
/// Example:
///
///     CudaGraph step(train_step);
///     for (auto& batch : batches) strategy.run(step, model, optimizer, batch);
///
/// Results equal those of calls. The first runs call the function; then one is captured, and later runs
/// replay it as long as everything that the host decides stays the same: shapes, constants, training flags of
/// modules, memory of parameters and states. Other runs, such as an epoch's smaller last batch, call the
/// function. If constants or shapes change for good, the function is captured again. Replicas on a CPU always
/// call it. Several workers agree before each run: all replay, all capture, or all call.
///
/// The whole function is one graph over NCCL, and on one replica without collectives. Otherwise collectives
/// on the device, gradient sums included, run between graphs.
///
/// Requirements:
/// - Everything is an argument: the function has no captures.
/// - PerReplica tensors and batches are on their replica's device. The graph reads copies of them; the
///   function must not write to them.
/// - Mirrored modules, optimizers that are CapturableStep, tensors, GradScaler, metrics, and your own objects
///   with `for_each_tensor(visit) const` are read and written in place. They must change their tensors in
///   place, and keep nothing on the host that a call changes. Each replica's thread visits its own objects.
/// - Any other argument is a constant, compared with ==. A different tensor is a different constant.
/// - Results are tensors, or batches or tuples of them (BatchTraits), without history.
/// - The function must not make the host wait for the device (item(), cpu()), and draws random numbers from
///   the replica's generator alone.
/// - Backward, apply_gradients() and a GradScaler's update() belong into the same function.
/// Side effects on the host, such as printing and counting, happen only in calls. Options of modules, such as
/// the probability of a dropout, are those of the capture.
///
/// Not thread-safe. Destroy it before the strategy that ran it. Another strategy, and arguments of other
/// types, start from the beginning.
template <typename Fn>
class CudaGraph {
  static_assert(std::is_empty_v<Fn> || std::is_pointer_v<Fn>,
                "a captured function has no state of its own: hand everything to run() as an argument");

 public:
  /// Throws InvalidArgument for less than one warm-up run, since objects made by the first call belong to no
  /// graph.
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

  /// Returns the calls that are kept between runs of one strategy.
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
  const Strategy* strategy_ = nullptr;  // whose calls these are
  const std::type_info* type_ = nullptr;
};

namespace detail {

template <typename Fn>
struct UnwrappedFunction {
  using Type = Fn;
};
template <typename Fn>
struct UnwrappedFunction<CudaGraph<Fn>> {
  using Type = Fn;
};
/// The function that run() calls for its first argument.
template <typename Fn>
using CalledFunction = typename UnwrappedFunction<Fn>::Type;

}  // namespace detail
}  // namespace lockstep
