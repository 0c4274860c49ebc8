#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/gradients/gradient_buckets.h"
#include "lockstep/runtime/gradients/tensor_mark.h"

namespace lockstep {

/// The kind of gradient that the replicas together have for one parameter.
enum class GradientKind : uint8_t { kNone, kDense, kSparse };

/// Sums the buckets over the replicas, once per step. Tracks which gradients have arrived, and launches full
/// buckets in their order, which is the same on all replicas. Use it from its replica's thread only.
class BucketedAllReduce {
 public:
  /// Keeps a reference to `buckets`, which may be laid out again between steps only.
  BucketedAllReduce(const GradientBuckets& buckets, ReplicaBackends channel)
      : buckets_(buckets), channel_(std::move(channel)) {}

  /// Resets to a state where nothing has arrived or been launched. Call it after each layout too.
  void begin_step();

  /// Records a gradient: either the parameter's slot, or a sparse tensor outside the buckets. May be called
  /// again until the parameter's bucket is launched.
  void arrive(size_t parameter, const at::Tensor& gradient);
  /// Undoes arrive(), if has_left() is false.
  void withdraw(size_t parameter);

  bool has_arrived(size_t parameter) const { return gradients_[parameter].arrived; }
  /// Returns true if a sparse gradient has arrived.
  bool is_sparse(size_t parameter) const { return gradients_[parameter].sparse; }
  /// Returns a mark of the last gradient to arrive, as it was when its bucket was launched.
  const TensorMark& mark(size_t parameter) const { return gradients_[parameter].mark; }
  /// Returns true if the parameter's bucket has been launched.
  bool has_left(size_t parameter) const { return progress_[buckets_.bucket_of(parameter)].launched; }
  /// Returns the parameters in order of arrival.
  const std::vector<size_t>& arrivals() const { return arrivals_; }

  /// Launch, without waiting, all full buckets whose turn it is, or all remaining buckets. Return how many.
  int64_t launch_full();
  int64_t launch_rest();
  /// Sums every bucket as it is and blocks until the sums are under way on the device, as wait() does. Used
  /// for replays, where the replicas' gradients are already known. Changes only the buckets' contents.
  void sum_buckets() const;
  /// Marks all buckets as launched and already waited for.
  void note_summed();
  /// Blocks until all buckets, which must be launched, are summed and every replica has called wait(). On
  /// GPUs the sums are only under way on the device by then; the host does not wait for them. `is_wanted`
  /// tells whether this replica will use the sums. Throws what the backend's Work::wait() throws, and, before
  /// any replica uses the sums, InvalidArgument naming the replicas that want them if only some do.
  void wait(bool is_wanted);
  /// Returns the kind of each parameter's gradient; valid after wait().
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
    c10::intrusive_ptr<c10d::Work> work;
  };

  void launch_next();
  at::Tensor flags(bool is_wanted) const;
  void read_flags(const at::Tensor& sums);

  const GradientBuckets& buckets_;
  const ReplicaBackends channel_;
  std::vector<Gradient> gradients_;  // one per parameter
  std::vector<size_t> arrivals_;
  std::vector<Progress> progress_;  // one per bucket
  std::vector<GradientKind> kinds_;
  size_t next_bucket_ = 0;
};

}  // namespace lockstep
