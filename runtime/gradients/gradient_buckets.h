#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/runtime/gradients/bucket_layout.h"
#include "lockstep/runtime/gradients/slice_layout.h"

namespace lockstep {

/// The equal parts that buckets are cut into if each rank gets the sums of one part only.
struct BucketParts {
  int count = 1;
  int own = 0;  ///< number of this rank's part
  /// Whether sums are kept apart from the buckets, whose memory exists only from allocate() to release().
  bool are_kept_apart = false;
};

/// The flat memory in which one replica's gradients are summed. Every parameter of the layout's order that
/// required a gradient when it was made has a slot in one of them. Use it from its replica's thread only.
class GradientBuckets {
 public:
  /// Replaces the buckets by new ones, filled with zeros; gradients keep the memory of their old slots alive.
  /// `order` lists indices of parameters, each at most once; the others get no slot. Slots begin at multiples
  /// of `alignment` bytes; the gaps hold zeros. Buckets of float32 and float64 get memory to be rounded to
  /// `wire_dtype` in.
  ///
  /// With `parts`, buckets are padded, so that their parts are equal and begin at whole cache lines. Buckets
  /// of shards are not cut into parts.
  void lay_out(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
               const BucketOptions& options, int64_t alignment = 1,
               std::optional<at::ScalarType> wire_dtype = std::nullopt,
               const std::optional<BucketParts>& parts = std::nullopt);
  /// Keeps the buckets, and adds others for parameters that require a gradient by now and have no slot. Those
  /// that require none any more keep theirs. No parameter's dtype, device or shape may have changed.
  void extend(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order);
  /// Replaces the buckets as lay_out() does, without parts, and with its options. `order` lists those of the
  /// parameters that required a gradient then; a change of requires_grad since has no effect. No parameter's
  /// dtype, device or shape may have changed.
  void rearrange(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order);
  /// Returns true if no parameter's dtype, device, shape, strides or requires_grad has changed since
  /// lay_out() or extend().
  bool fit(const std::vector<at::Tensor>& parameters) const;
  /// Returns the first parameter whose dtype, device or shape has changed, if there is one.
  std::optional<size_t> find_changed(const std::vector<at::Tensor>& parameters) const;

  const BucketOptions& options() const { return options_; }
  /// Returns the shorter dtype in which buckets are summed, if there is one.
  std::optional<at::ScalarType> wire_dtype() const { return wire_dtype_; }
  size_t size() const { return buckets_.size(); }
  size_t num_parameters() const { return slots_.size(); }
  /// Returns the parameters with a slot in the bucket, in the order of the slots.
  const std::vector<size_t>& members(size_t bucket) const { return buckets_[bucket].members; }
  const at::Tensor& flat(size_t bucket) const { return buckets_[bucket].flat; }
  /// Returns whether the bucket's parameters are shards, which have buckets of their own; see
  /// ShardedParameter.
  bool has_shards(size_t bucket) const { return buckets_[bucket].has_shards; }

  /// Returns the number of elements of a bucket, padding included.
  int64_t numel(size_t bucket) const { return buckets_[bucket].flat.numel(); }
  /// Returns the places of the bucket's parameters.
  std::vector<BucketSlot> slots(size_t bucket) const;
  /// Returns all tensors that hold sums or will, rounded copies included. Buckets whose sums are kept apart
  /// are not among them.
  std::vector<at::Tensor> tensors() const;

  // With parts only.

  const BucketParts& parts() const { return *parts_; }
  /// Returns whether the bucket is cut into parts.
  bool is_in_parts(size_t bucket) const { return parts_ && !has_shards(bucket); }
  int64_t part_numel(size_t bucket) const { return numel(bucket) / parts_->count; }
  /// Returns the memory that gets the sums of this rank's part: a part of the bucket, or memory of its own.
  const at::Tensor& own_part(size_t bucket) const { return buckets_[bucket].own_part; }
  /// Returns the memory that receives what is summed of sent(): own_part(), or its part in the rounded copy.
  at::Tensor received_part(size_t bucket) const;
  /// Writes a rounded sum to own_part(); does nothing for a bucket that is not rounded.
  void take_back_part(size_t bucket) const;
  /// Makes the bucket's memory, if there is none. Its contents are undefined, but for zeros in the padding.
  void allocate(size_t bucket) const;
  /// Frees the bucket's memory, if sums are kept apart. Slots must not be used until it is allocated again.
  void release(size_t bucket) const;
  /// Returns the bytes that the buckets take now, without sums that are kept apart.
  int64_t bytes() const;
  /// Returns the bytes of the sums that are kept apart.
  int64_t bytes_apart() const;

  /// Returns what is to be summed over the replicas: the bucket, or its rounded copy, which round() makes and
  /// take_back() writes to the bucket. These do nothing for a bucket that is not rounded, and allocate
  /// nothing.
  const at::Tensor& sent(size_t bucket) const {
    return buckets_[bucket].rounded.defined() ? buckets_[bucket].rounded : buckets_[bucket].flat;
  }
  void round(size_t bucket) const;
  void take_back(size_t bucket) const;

  bool has_slot(size_t parameter) const { return slots_[parameter].view.defined(); }
  /// Returns true if the parameter has a slot and required a gradient in the last lay_out() or extend().
  bool is_trained(size_t parameter) const {
    return has_slot(parameter) && signatures_[parameter].requires_grad;
  }
  size_t bucket_of(size_t parameter) const { return slots_[parameter].bucket; }
  /// Returns the parameter's slot in its flat bucket. It shares the bucket's memory but is not an autograd
  /// view.
  const at::Tensor& slot(size_t parameter) const { return slots_[parameter].view; }
  /// Returns true if `gradient` is stored in the parameter's bucket.
  bool holds(size_t parameter, const at::Tensor& gradient) const {
    // is_alias_of() would look at the data, which a pending gradient refuses.
    const auto storage_of = [](const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); };
    return has_slot(parameter) && gradient.defined() && gradient.layout() == at::kStrided &&
           storage_of(gradient) == storage_of(slots_[parameter].view);
  }

 private:
  struct Bucket {
    at::Tensor flat;
    at::Tensor rounded;  // undefined if the bucket is sent as it is
    std::vector<size_t> members;
    at::Tensor own_part;  // undefined without parts
    bool has_shards = false;
  };
  struct Slot {
    size_t bucket = 0;
    at::Tensor view;  // undefined if the parameter required no gradient, or is in no order
  };
  struct Signature {
    at::ScalarType dtype;
    at::Device device;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    bool requires_grad;
  };

  void add_buckets(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order);
  void add_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& members);
  bool is_kept_apart(size_t bucket) const { return is_in_parts(bucket) && parts_->are_kept_apart; }

  BucketOptions options_;
  int64_t alignment_ = 1;
  std::optional<at::ScalarType> wire_dtype_;
  std::optional<BucketParts> parts_;
  std::vector<Signature> signatures_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep
