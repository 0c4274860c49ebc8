#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/gradients/gradient_buckets.h"
#include "lockstep/runtime/gradients/tensor_mark.h"

namespace lockstep {

/// What the replicas together have for one parameter.
enum class GradientKind : uint8_t { kNone, kDense, kSparse };

/// Sums the buckets over the replicas, once a step: keeps which gradients have arrived, and launches full
/// buckets in their order, which all replicas keep to. Used by its replica's thread only.
class BucketedAllReduce {
 public:
  /// Refers to `buckets`, which are laid out anew between steps only.
  BucketedAllReduce(const GradientBuckets& buckets, ReplicaBackends channel)
      : buckets_(buckets), channel_(std::move(channel)) {}

  /// Nothing has arrived and nothing is launched. Call it after each layout, too.
  void begin_step();

  /// `gradient` is the parameter's slot, or sparse and no part of a bucket. May come again until it has left.
  void arrive(size_t parameter, const at::Tensor& gradient);
  /// Takes an arrival back, where has_left() is false.
  void withdraw(size_t parameter);

  bool has_arrived(size_t parameter) const { return gradients_[parameter].arrived; }
  /// Whether a gradient arrived, and a sparse one.
  bool is_sparse(size_t parameter) const { return gradients_[parameter].sparse; }
  /// The gradient that arrived last, as it was when its bucket was launched.
  const TensorMark& mark(size_t parameter) const { return gradients_[parameter].mark; }
  /// Whether the parameter's bucket is launched.
  bool has_left(size_t parameter) const { return progress_[buckets_.bucket_of(parameter)].launched; }
  /// Parameters in the order of their arrival.
  const std::vector<size_t>& arrivals() const { return arrivals_; }

  /// Launch, without waiting, the full buckets whose turn it is, or all that are left. Return how many.
  int64_t launch_full();
  int64_t launch_rest();
  /// Sums every bucket as it is and blocks until that is under way on the device, as wait(): what a replay
  /// does, for which what the replicas have is known. Changes nothing but the buckets' contents.
  void sum_buckets() const;
  /// Takes all buckets for launched, and for waited for already.
  void note_summed();
  /// Blocks until all buckets, which are launched, are summed and every replica is here: on GPUs their sums
  /// are then under way on the device, for which the host does not wait. `is_wanted`: whether anybody will
  /// ask for the sums. Throws what the backend's Work::wait() throws, and InvalidArgument naming the replicas
  /// where only some want them, before anyone has used them.
  void wait(bool is_wanted);
  /// For each parameter, after wait().
  const std::vector<GradientKind>& kinds() const { return kinds_; }

 private:
  struct Gradient {
    bool arrived = false;
    bool sparse = false;
    TensorMark mark;
  };
  struct Progress {
    size_t pending = 0;  // slots whose gradient has not arrived
    bool launched = false;
    c10::intrusive_ptr<c10d::Work> work;
  };

  void launch_next();
  at::Tensor flags(bool is_wanted) const;
  void read_flags(const at::Tensor& sums);

  const GradientBuckets& buckets_;
  const ReplicaBackends channel_;
  std::vector<Gradient> gradients_;  // of each parameter
  std::vector<size_t> arrivals_;
  std::vector<Progress> progress_;  // of each bucket
  std::vector<GradientKind> kinds_;
  size_t next_bucket_ = 0;
};

}  // namespace lockstep
