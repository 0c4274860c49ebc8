#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/gradients/gradient_buckets.h"

namespace lockstep {

/// Sums buckets over the ranks. Buckets are launched in the same order on all ranks, each once between two
/// calls of wait(). Use it from its replica's thread only.
class BucketSums {
 public:
  virtual ~BucketSums() = default;

  /// Begins to sum GradientBuckets::sent(bucket). Does not wait.
  virtual void launch(size_t bucket) = 0;
  /// Begins what follows sums that have ended. Does not wait.
  virtual void advance() {}
  /// Blocks until at most `most` launched buckets still take memory for their sums. Does nothing if that
  /// memory stays anyway. Call it only where wait() could be called, too.
  virtual void make_room(size_t most) { static_cast<void>(most); }
  /// Blocks until the sums of all launched buckets are there. On GPUs they are only under way on the device
  /// by then; the host does not wait for them. Throws what the backends' Work::wait() throws.
  virtual void wait() = 0;
  /// Forgets launched sums, which must have ended or failed.
  virtual void reset() = 0;
};

/// Each rank gets the sums of all elements, in the bucket.
class WholeBucketSums : public BucketSums {
 public:
  /// `copies` sums buckets of shards (see ShardedParameter) over the ranks that have the same ones. Null:
  /// each rank's shards are its own.
  WholeBucketSums(const GradientBuckets& buckets, c10::intrusive_ptr<c10d::Backend> backend,
                  c10::intrusive_ptr<c10d::Backend> copies = nullptr)
      : buckets_(buckets), backend_(std::move(backend)), copies_(std::move(copies)) {}

  void launch(size_t bucket) override;
  void wait() override;
  void reset() override { launched_.clear(); }

 private:
  struct Launched {
    size_t bucket;
    c10::intrusive_ptr<c10d::Work> work;
  };

  const GradientBuckets& buckets_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const c10::intrusive_ptr<c10d::Backend> copies_;
  std::vector<Launched> launched_;
};

/// Each rank gets the sums of its own part, in GradientBuckets::own_part(). Buckets are released as soon as
/// their sums are there, if those are kept apart. Of buckets of shards, each rank gets the sums of all
/// elements.
class PartBucketSums : public BucketSums {
 public:
  /// Sums over the ranks of `parts`, of which each gets another part, and over those of `copies`, if there
  /// are any, which get the same part. Sums buckets of shards over `copies_of_shards`, if there are any.
  PartBucketSums(const GradientBuckets& buckets, c10::intrusive_ptr<c10d::Backend> parts,
                 c10::intrusive_ptr<c10d::Backend> copies,
                 c10::intrusive_ptr<c10d::Backend> copies_of_shards = nullptr)
      : buckets_(buckets),
        parts_(std::move(parts)),
        copies_(std::move(copies)),
        copies_of_shards_(std::move(copies_of_shards)) {}

  void launch(size_t bucket) override;
  void advance() override;
  void make_room(size_t most) override;
  void wait() override;
  void reset() override;

 private:
  struct Launched {
    size_t bucket;
    c10::intrusive_ptr<c10d::Work> work;  // the reduce-scatter, then the all-reduce of the part
  };

  c10::intrusive_ptr<c10d::Work> begin_sum(size_t bucket) const;
  void end_scatter();
  void end_sum();

  const GradientBuckets& buckets_;
  const c10::intrusive_ptr<c10d::Backend> parts_;
  const c10::intrusive_ptr<c10d::Backend> copies_;
  const c10::intrusive_ptr<c10d::Backend> copies_of_shards_;
  std::vector<Launched> launched_;
  size_t num_scattered_ = 0;  // of the launched buckets, those whose reduce-scatter has ended
  size_t num_summed_ = 0;
};

}  // namespace lockstep
