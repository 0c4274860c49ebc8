#pragma once

// Internal: only sources of its layer need it.

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/bucket_layout.h"
#include "lockstep/runtime/tensor_mark.h"

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
  /// Counts since construction, of this replica.
  struct Statistics {
    int64_t launched_in_backward = 0;  ///< buckets that left from a hook, before backward had ended
    int64_t launched_at_end = 0;       ///< buckets that finish() had to launch
    int64_t rebuilds = 0;              ///< layouts made, the first one included
  };

  /// Installs the hooks. Call it in the replica's thread, on the stream that backward will use: gradient
  /// accumulators keep the stream they are made on.
  GradientReducer(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::Backend> backend,
                  Options options);
  /// Removes the hooks.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// At the start of a run: takes over a new bucket order, and lays the buckets out anew where a parameter's
  /// dtype, device, shape or requires_grad has changed. Blocks only where such a change comes between a
  /// backward and the step that was to use its gradients: those are summed and dropped.
  void prepare();

  /// Blocks until grad() of every parameter holds the sum over all replicas. Parameters unused on every
  /// replica keep an undefined gradient; unused on some count as zeros there. Does nothing if the sums are
  /// there already and no backward came since. Throws what the backend's Work::wait() throws, and
  /// InvalidArgument naming the parameter where gradients still hold the last step's sums, or where one began
  /// to require a gradient within the run.
  void finish();

  /// The optimizer has stepped: what grad() holds has been used, and the next finish() sums anew.
  void mark_applied();
  /// After a failed run, while no replica is inside: forgets what was under way. Gradients whose sum may be
  /// half done become undefined.
  void reset();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Indices of the parameters in the order the buckets are laid out in: reverse registration order at first,
  /// then the arrival order of replica 0's first backward.
  const std::vector<size_t>& order() const { return order_; }
  size_t num_buckets() const { return buckets_.size(); }
  const Statistics& statistics() const { return statistics_; }

 private:
  struct Bucket {
    at::Tensor flat;
    std::vector<size_t> members;
    size_t pending = 0;
    bool launched = false;
    c10::intrusive_ptr<c10d::Work> work;
  };
  struct Slot {
    bool trained = false;  // required a gradient when the layout was made; others have no bucket
    size_t bucket = 0;
    at::Tensor view;  // the parameter's place in the flat bucket: shares its memory, is no autograd view
    bool arrived = false;
    TensorMark sparse;  // the sparse gradient that arrived
  };
  struct Signature {
    at::ScalarType dtype;
    at::Device device;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    bool requires_grad;
    bool operator==(const Signature&) const = default;
  };
  enum class Phase { kIdle, kCollecting, kSummed };

  Signature signature_of(size_t index) const;
  bool layout_is_current() const;
  void lay_out();
  void install_hooks();
  void remove_hooks();
  void on_gradient(size_t index);
  void begin_step();
  bool was_zeroed(std::optional<size_t> newcomer) const;
  bool sums_are_there() const;
  void drain();
  void drop_gradients();
  void take_in(size_t index);
  void write_flags();
  void launch(Bucket& bucket, bool in_backward);
  void launch_full_buckets();
  void sum_sparse(const at::Tensor& flags);
  void agree_on_order();
  bool in_slot(size_t index) const;
  bool holds_old_sum(size_t index, int64_t own_writes) const;
  [[noreturn]] void refuse_old_sum(size_t index) const;
  void check_untrained() const;

  std::vector<at::Tensor> parameters_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  Options options_;
  std::vector<size_t> order_;
  std::vector<size_t> next_order_;  // agreed on, taken over by the next prepare()
  bool order_is_final_ = false;
  std::vector<Signature> signatures_;
  std::vector<Slot> slots_;
  // The last step's sums, to notice a grad() that nobody has zeroed: after any change of the layout, too.
  std::vector<TensorMark> old_sums_;
  std::vector<Bucket> buckets_;
  at::Tensor flags_;  // the end of the last bucket: used, then sparse, one element a parameter each
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<uintptr_t> hook_keys_;
  std::vector<size_t> arrivals_;
  size_t next_bucket_ = 0;
  Phase phase_ = Phase::kIdle;
  Statistics statistics_;
};

}  // namespace lockstep
