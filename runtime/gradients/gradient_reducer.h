#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/gradients/bucket_layout.h"
#include "lockstep/runtime/gradients/bucket_order.h"
#include "lockstep/runtime/gradients/bucketed_all_reduce.h"
#include "lockstep/runtime/gradients/gradient_buckets.h"
#include "lockstep/runtime/gradients/gradient_hooks.h"
#include "lockstep/runtime/gradients/summed_gradients.h"
#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/runtime/graphs/graph_recording.h"

namespace lockstep {

/// Sums of which each rank gets a part; see GradientSharding.
struct ShardedSums {
  /// 1: buckets stay whole. 2: a bucket has memory only from its first gradient to the end of its sum, and
  /// this rank's part is kept apart.
  int stage = 1;
  /// The ranks that own different parts.
  ReplicaBackends parts;
  /// The ranks that own the same part, if there are others.
  std::optional<ReplicaBackends> copies = std::nullopt;
};

/// Sums one optimizer's gradients over the replicas while backward is still running. Each replica has one;
/// all must hold the same parameters in the same order. Use it from its replica's thread only.
///
/// Hooks on the gradient accumulators copy each finished gradient into its slot of a flat bucket. On GPUs all
/// gradients of a bucket are copied at once, when it is full. Full buckets are launched in order. Meanwhile
/// `grad()` is a pending_gradient(), which throws if it is used. finish() waits for the sums, and makes
/// `grad()` the slot. While gradients are held back (ReplicaContext::accumulate()), nothing is copied or
/// launched.
///
/// Sparse gradients are gathered in finish(). A parameter that has them gets no slot, as soon as that is
/// known: at once if the options say so, otherwise from the step after its first sum. If its gradients are
/// dense later on, finish() sums them apart, and from the next step on it has a slot for good.
///
/// The layout depends on the steps before alone. All replicas agree in finish() on the order of the
/// parameters and on their gradients' kinds, and each makes the layout that follows before it takes in the
/// first gradient of the next step.
class GradientReducer {
 public:
  struct Options {
    BucketOptions buckets;
    /// Returns true while the replica holds its gradients back.
    std::function<bool()> is_accumulating;
    /// Returns a parameter's name for errors, quoted if it has one.
    std::function<std::string(size_t)> name_of;
    /// Parameters whose gradients are expected to be sparse; the same on all replicas.
    std::vector<size_t> sparse = {};
    /// Number of steps after each layout in which no bucket is launched in backward, but all are launched
    /// together with the other replicas'. Use it if the channel occupies devices: the first steps allocate
    /// memory and load kernels.
    int settling_steps = 0;
    /// Slots begin at multiples of so many bytes. Must be the same on all replicas.
    int64_t slot_alignment = 1;
    /// None: each replica gets the whole sums.
    std::optional<ShardedSums> sharding = std::nullopt;
    /// The ranks that have the same shards (see ShardedParameter), over which their gradients are summed.
    /// None: there are no others.
    std::optional<ReplicaBackends> copies_of_shards = std::nullopt;
  };
  /// The state of the gradients since the last step: none has arrived, they are being collected, or grad()
  /// holds their sums.
  enum class Phase : uint8_t { kIdle, kCollecting, kSummed };
  /// Counts for this replica since construction.
  struct Statistics {
    int64_t launched_in_backward = 0;  ///< buckets launched by a hook, before backward ended
    int64_t launched_at_end = 0;       ///< buckets launched by finish()
    int64_t rebuilds = 0;              ///< layouts made, including the first
    int64_t peak_bucket_bytes = 0;     ///< most memory that buckets had at once, if sums are sharded
  };

  /// Installs the hooks. Construct it in the replica's thread, on the stream that backward will use: gradient
  /// accumulators keep the stream they are created on.
  GradientReducer(std::vector<at::Tensor> parameters, ReplicaBackends channel, Options options);
  /// Gradients that are still pending become undefined.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Sets the graph recording. While it captures, no sum is launched in backward; instead finish() interrupts
  /// it once for all sums. Pass null for none, for example if the channel's collectives can be captured.
  void record(GraphRecording* recording) { recording_ = recording; }
  /// While on, hooks do not ask how far sums have got: a graph that is being captured cannot hold that.
  void set_captured(bool is_captured) { is_captured_ = is_captured; }
  Phase phase() const { return phase_; }
  /// Adds the state of the buckets that a captured step depends on.
  void describe(Fingerprint& fingerprint) const;

  /// Call it at the start of a run. Makes a new layout if another one was set, or if a parameter's dtype,
  /// device, shape or requires_grad has changed. Blocks only if the latter falls between a backward and the
  /// step that would use its gradients: these are summed and dropped.
  ///
  /// If sums are sharded, the layout is kept, and buckets are added for parameters that require a gradient by
  /// now. Throws InvalidArgument naming a parameter whose dtype, device or shape has changed.
  void prepare();

  /// Blocks until grad() of every parameter holds the sum over all replicas. A parameter unused on every
  /// replica keeps an undefined gradient; a replica that did not use it counts as zeros if others did. Does
  /// nothing if the sums are already there and no backward ran since. On GPUs the host waits only for the
  /// other replicas' threads, and for the device if gradients are sparse.
  ///
  /// Throws what the backend's Work::wait() throws. Throws InvalidArgument naming the parameter if gradients
  /// still hold the last step's sums, if a gradient was changed after its bucket was launched, or if a
  /// parameter began to require a gradient within the run. Throws InvalidArgument naming the replicas if
  /// others have dropped the backward that produced these gradients.
  ///
  /// If sums are sharded, they are in GradientBuckets::own_part() then, and grad() is a pending_gradient(),
  /// except for shards. Throws InvalidArgument naming the parameter if a gradient is sparse.
  void finish();
  /// Blocks until grad() of every parameter holds the whole sum, in stage 1, after finish(). Does nothing if
  /// sums are not sharded, are there already, or are in stage 2, which has no memory for them.
  void gather();

  /// Takes gradients that the caller has put in place of sharded sums, or has changed after gather(), over
  /// into own_part(). Call it before a sharded step.
  void take_changes();
  /// Returns true if the parameter has a sharded sum that is to be applied; valid after take_changes().
  bool has_sum(size_t parameter) const {
    return buckets_.is_trained(parameter) && all_reduce_.kinds()[parameter] == GradientKind::kDense &&
           parameters_[parameter].grad().defined();
  }

  /// Call it after the optimizer has stepped: the next finish() sums again. Gradients whose sum was sharded
  /// become undefined.
  void mark_applied();
  /// Call it after a failed run, while no replica is inside. Forgets launched work and the buckets' order.
  /// Gradients whose sum may be incomplete become undefined.
  void reset();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Returns the parameters' indices in the order of the bucket layout; see BucketOrder.
  const std::vector<size_t>& order() const { return order_.current(); }
  /// Returns the order of all layouts but the first, once it is known. Call it between runs. See
  /// BucketOrder::agreed().
  std::vector<size_t> agreed_order() const { return order_.agreed(); }
  /// Call it between runs, while no gradients are being collected, with the same order on all replicas. Does
  /// nothing if sums are sharded, since the order decides who owns what.
  void set_agreed_order(std::vector<size_t> order) {
    if (!options_.sharding) order_.set_agreed(std::move(order));
  }
  /// Returns for each parameter kDense if its sum ever was dense, otherwise kSparse if it was sparse or is
  /// expected to be. Empty while agreed_order() is. Call it between runs.
  std::vector<GradientKind> agreed_kinds() const {
    return order_.agreed().empty() ? std::vector<GradientKind>() : seen_;
  }
  /// Sets the kinds, one for each parameter, for example from an earlier process of the training. kNone keeps
  /// what is known. Call it as set_agreed_order(). Does nothing if sums are sharded.
  void set_agreed_kinds(const std::vector<GradientKind>& kinds);
  size_t num_buckets() const { return buckets_.size(); }
  /// Returns the memory in which gradients are summed. Call it between runs.
  std::vector<at::Tensor> bucket_tensors() const { return buckets_.tensors(); }
  const Statistics& statistics() const { return statistics_; }
  const GradientBuckets& buckets() const { return buckets_; }

 private:
  std::unique_ptr<BucketSums> make_sums() const;
  std::unique_ptr<BucketSums> make_whole_sums(const GradientBuckets& buckets) const;
  void make_pending();
  bool is_laid_out() const;
  void expect_kinds();
  void note_kinds();
  bool fits_kinds() const;
  /// Whether the parameter's gradients are summed outside the buckets, since they are expected to be sparse.
  bool is_outside(size_t index) const { return is_outside_[index] != 0; }
  bool is_summed(size_t index) const { return buckets_.is_trained(index) || is_outside(index); }
  /// Whether a part of the parameter's sum is this rank's.
  bool is_in_parts(size_t index) const {
    return buckets_.has_slot(index) && buckets_.is_in_parts(buckets_.bucket_of(index));
  }
  bool is_recording() const { return recording_ != nullptr && recording_->is_capturing(); }
  bool is_outdated() const { return order_.has_next() || (!options_.sharding && !fits_kinds()); }
  void lay_out();
  void lay_out_parts();
  void rearrange();
  void begin_layout();
  void on_gradient(size_t index);
  void begin_step();
  void end_step();
  void take_in(size_t index);
  void check_single_owner(size_t index) const;
  void fill(size_t bucket);
  bool was_zeroed(std::optional<size_t> newcomer) const;
  void drain();
  void finish_sums(bool is_wanted);
  void drop_gradients();
  void check_left_alone(size_t index) const;
  void take_in_rest();
  void put_back_sums();
  void put_back_parts();
  void drop_parts();
  void allocate(size_t bucket);
  void allocate_rest(size_t bucket);
  [[noreturn]] void refuse_sparse(size_t index) const;
  void sum_sparse(const std::vector<GradientKind>& kinds);
  void sum_apart(const std::vector<GradientKind>& kinds);
  void check_untrained() const;
  [[noreturn]] void refuse_old_sum(size_t index) const;

  std::vector<at::Tensor> parameters_;
  const ReplicaBackends channel_;
  Options options_;
  BucketOrder order_;
  GradientBuckets buckets_;
  BucketedAllReduce all_reduce_;
  std::vector<at::Tensor> pending_;  // for each parameter: its grad() until the sum is there
  std::vector<at::Tensor> sharded_;  // for each parameter: its grad() while its sum is sharded
  std::vector<at::Tensor> to_fill_;  // for each parameter: a gradient that fill() has yet to copy
  std::vector<GradientKind> seen_;   // for each parameter: kDense once it was, else kSparse if it is so
  std::vector<uint8_t> is_outside_;  // for each parameter, in this layout
  SummedGradients old_sums_;
  Phase phase_ = Phase::kIdle;
  Statistics statistics_;
  int settling_steps_ = 0;  // steps left in which buckets are launched together
  GraphRecording* recording_ = nullptr;
  bool is_captured_ = false;
  bool is_rearranged_ = false;          // whether the layout has changed since the run began
  bool is_gathered_ = false;            // whether grad() holds the whole of sharded sums
  std::optional<GradientHooks> hooks_;  // last: nothing may call on_gradient() while the rest is destroyed
};

}  // namespace lockstep
