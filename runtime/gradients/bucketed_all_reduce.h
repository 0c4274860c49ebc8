#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/gradient_kind.h"
#include "lockstep/runtime/gradients/bucket_sums.h"
#include "lockstep/runtime/gradients/gradient_buckets.h"
#include "lockstep/runtime/gradients/tensor_mark.h"

namespace lockstep {

/// Sums the buckets over the replicas, once per step. Tracks which gradients have arrived, and launches full
/// buckets in their order, which is the same on all replicas. Use it from its replica's thread only.
class BucketedAllReduce {
 public:
  /// Keeps a reference to `buckets`, which may be laid out again between steps only. Calls `fill(bucket)`,
  /// unless it is null, before it launches a bucket, and possibly earlier as well: the time to write into the
  /// bucket, and to call arrive() for its parameters again. The replicas agree over `channel`, which also
  /// sums the buckets unless `sums` does.
  BucketedAllReduce(const GradientBuckets& buckets, ReplicaBackends channel,
                    std::function<void(size_t bucket)> fill = nullptr,
                    std::unique_ptr<BucketSums> sums = nullptr)
      : buckets_(buckets),
        channel_(std::move(channel)),
        fill_(std::move(fill)),
        sums_(sums ? std::move(sums) : std::make_unique<WholeBucketSums>(buckets, channel_.device)) {}

  /// Resets to a state where nothing has arrived or been launched. Call it after each layout too.
  void begin_step();
  /// Begins sums that follow others, if those have ended: see BucketSums. Does not wait.
  void advance() { sums_->advance(); }

  /// Records a gradient: the parameter's slot, a tensor outside the buckets if it is sparse or the parameter
  /// has no slot, or a dense one that `fill` copies into the slot. May be called again until the parameter's
  /// bucket is launched.
  void arrive(size_t parameter, const at::Tensor& gradient);
  /// Undoes arrive(), if has_left() is false.
  void withdraw(size_t parameter);

  bool has_arrived(size_t parameter) const { return gradients_[parameter].arrived; }
  /// Returns true if a sparse gradient has arrived.
  bool is_sparse(size_t parameter) const { return gradients_[parameter].sparse; }
  /// Returns a mark of the last gradient to arrive, as it was when its bucket was launched.
  const TensorMark& mark(size_t parameter) const { return gradients_[parameter].mark; }
  /// Returns true if the parameter's bucket has been launched.
  bool has_left(size_t parameter) const {
    return buckets_.has_slot(parameter) && progress_[buckets_.bucket_of(parameter)].launched;
  }
  /// Returns the parameters in order of arrival.
  const std::vector<size_t>& arrivals() const { return arrivals_; }

  /// Launches, without waiting, all full buckets whose turn it is. Returns how many.
  int64_t launch_full();
  struct FinishOptions {
    bool is_wanted = true;  ///< Whether this replica will use the sums.
    /// Whether this replica launches nothing before all replicas have called finish(), and calls nothing that
    /// may wait for the driver before all have launched. See CollectiveChannel::occupies_devices().
    bool launches_together = false;
  };
  /// Call `fill` for all full buckets, or for all that are not launched, and launch nothing.
  void fill_full();
  void fill_rest();
  /// Sums every bucket as it is and blocks until the sums are under way on the device, as finish() does. Used
  /// for replays, where the replicas' gradients are already known. Changes only the buckets' contents.
  void sum_buckets() const;
  /// Marks all buckets as launched and already waited for.
  void note_summed();
  /// Launches all remaining buckets, and blocks until all buckets are summed and every replica has called
  /// finish(). On GPUs the sums are only under way on the device by then; the host does not wait for them.
  /// Returns how many buckets it has launched. Throws what the backend's Work::wait() throws, and, before any
  /// replica uses the sums, InvalidArgument naming the replicas that want them if only some do.
  int64_t finish(const FinishOptions& options);
  /// Returns the kind of each parameter's gradient; valid after finish().
  const std::vector<GradientKind>& kinds() const { return kinds_; }

 private:
  struct Gradient {
    bool arrived = false;
    bool sparse = false;
    TensorMark mark;
  };
  struct Progress {
    size_t pending = 0;  // number of slots whose gradient has not arrived
    bool launched = false;
  };

  /// An exchange of flags on the host, which every replica takes part in.
  struct Agreement {
    std::vector<at::Tensor> flags;
    c10::intrusive_ptr<c10d::Work> work;
  };

  void make_ready(size_t bucket) const;
  void launch_next();
  int64_t launch_rest(bool may_wait);
  Agreement begin_agreement(const FinishOptions& options) const;
  bool end_agreement(Agreement& agreement);
  void meet() const;
  at::Tensor flags(const FinishOptions& options) const;
  void check_wanted(const int32_t* is_wanted) const;

  const GradientBuckets& buckets_;
  const ReplicaBackends channel_;
  const std::function<void(size_t bucket)> fill_;
  const std::unique_ptr<BucketSums> sums_;
  std::vector<Gradient> gradients_;  // one per parameter
  std::vector<size_t> arrivals_;
  std::vector<Progress> progress_;  // one per bucket
  std::vector<GradientKind> kinds_;
  size_t next_bucket_ = 0;   // to launch
  size_t next_to_fill_ = 0;  // by fill_full()
};

}  // namespace lockstep
