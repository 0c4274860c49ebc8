#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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

/// Sums one optimizer's gradients over the replicas while backward still runs. One object a replica; all of
/// them see the same parameters in the same order. Used by its replica's thread only.
///
/// Hooks on the gradient accumulators copy each finished gradient into a flat bucket, of which `grad()`
/// becomes a slot; full buckets are launched in order, and finish() waits for the sums. While gradients are
/// held (ReplicaContext::accumulate()) nothing is copied or launched.
class GradientReducer {
 public:
  struct Options {
    BucketOptions buckets;
    /// Whether the replica holds its gradients back just now.
    std::function<bool()> is_accumulating;
    /// A parameter's name for errors, in quotes where it has one.
    std::function<std::string(size_t)> name_of;
  };
  /// What has become of the gradients since the last step: none has come, they are being collected, or grad()
  /// holds their sums.
  enum class Phase : uint8_t { kIdle, kCollecting, kSummed };
  /// Counts since construction, of this replica.
  struct Statistics {
    int64_t launched_in_backward = 0;  ///< buckets that left from a hook, before backward had ended
    int64_t launched_at_end = 0;       ///< buckets that finish() had to launch
    int64_t rebuilds = 0;              ///< layouts made, the first one included
  };

  /// Installs the hooks. Call it in the replica's thread, on the stream that backward will use: gradient
  /// accumulators keep the stream they are made on.
  GradientReducer(std::vector<at::Tensor> parameters, ReplicaBackends channel, Options options);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// From now on finish() interrupts `recording`, if that captures, for all sums at once, and none is
  /// launched in backward. Null: none, as where the channel's collectives can be captured.
  void record(GraphRecording* recording) { recording_ = recording; }
  Phase phase() const { return phase_; }
  /// Adds what a captured step takes over of the buckets.
  void describe(Fingerprint& fingerprint) const;

  /// At the start of a run: takes over a new bucket order, and lays the buckets out anew where a parameter's
  /// dtype, device, shape or requires_grad has changed. Blocks only where such a change comes between a
  /// backward and the step that was to use its gradients: those are summed and dropped.
  void prepare();

  /// Blocks until grad() of every parameter holds the sum over all replicas. Parameters unused on every
  /// replica keep an undefined gradient; unused on some count as zeros there. Does nothing if the sums are
  /// there already and no backward came since. On GPUs the host only waits for the other replicas' threads,
  /// and for the device where gradients are sparse. Throws what the backend's Work::wait() throws, and
  /// InvalidArgument naming the parameter where gradients still hold the last step's sums, where one was
  /// changed after it had left to be summed, or where one began to require a gradient within the run, and
  /// naming the replicas where others have dropped the backward whose gradients these are.
  void finish();

  /// The optimizer has stepped: what grad() holds has been used, and the next finish() sums anew.
  void mark_applied();
  /// After a failed run, while no replica is inside: forgets what was under way and the buckets' order.
  /// Gradients whose sum may be half done become undefined.
  void reset();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Indices of the parameters in the order the buckets are laid out in; see BucketOrder.
  const std::vector<size_t>& order() const { return order_.current(); }
  /// The order that all steps but the first are laid out in, once that is known; between runs. See
  /// BucketOrder::agreed().
  std::vector<size_t> agreed_order() const { return order_.agreed(); }
  void set_agreed_order(std::vector<size_t> order) { order_.set_agreed(std::move(order)); }
  size_t num_buckets() const { return buckets_.size(); }
  const Statistics& statistics() const { return statistics_; }

 private:
  bool is_laid_out() const;
  bool is_recording() const { return recording_ != nullptr && recording_->is_capturing(); }
  void lay_out();
  void on_gradient(size_t index);
  void begin_step();
  void take_in(size_t index);
  bool was_zeroed(std::optional<size_t> newcomer) const;
  void drain();
  void drop_gradients();
  void check_left_alone(size_t index) const;
  void take_in_rest();
  void put_back_sums();
  void sum_sparse(const std::vector<GradientKind>& kinds);
  void check_untrained() const;
  [[noreturn]] void refuse_old_sum(size_t index) const;

  std::vector<at::Tensor> parameters_;
  const ReplicaBackends channel_;
  Options options_;
  BucketOrder order_;
  GradientBuckets buckets_;
  BucketedAllReduce all_reduce_;
  SummedGradients old_sums_;
  Phase phase_ = Phase::kIdle;
  Statistics statistics_;
  GraphRecording* recording_ = nullptr;
  std::optional<GradientHooks> hooks_;  // last, so that nothing calls on_gradient() while the rest goes
};

}  // namespace lockstep
