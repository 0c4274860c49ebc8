#pragma once

// Internal: only sources of its layer need it.

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/runtime/gradient_buckets.h"
#include "lockstep/runtime/tensor_mark.h"

namespace lockstep {

/// What the replicas together have for one parameter.
enum class GradientKind : uint8_t { kNone, kDense, kSparse };

/// Sums the buckets over the replicas, once a step: keeps which gradients have arrived, and launches full
/// buckets in their order, which all replicas keep to. Used by its replica's thread only.
class BucketedAllReduce {
 public:
  /// Refers to `buckets`, which are laid out anew between steps only.
  BucketedAllReduce(const GradientBuckets& buckets, c10::intrusive_ptr<c10d::Backend> backend)
      : buckets_(buckets), backend_(std::move(backend)) {}

  /// Sums over another backend from the next step on.
  void use(c10::intrusive_ptr<c10d::Backend> backend) { backend_ = std::move(backend); }

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
  /// Blocks until the launched buckets are summed. Throws what the backend's Work::wait() throws.
  void wait();
  /// For each parameter, after wait().
  std::vector<GradientKind> kinds() const;

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
  void write_flags() const;

  const GradientBuckets& buckets_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::vector<Gradient> gradients_;  // of each parameter
  std::vector<size_t> arrivals_;
  std::vector<Progress> progress_;  // of each bucket
  size_t next_bucket_ = 0;
};

}  // namespace lockstep
