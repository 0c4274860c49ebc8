#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep {

/// The flat memory in which one replica's gradients are summed. Every parameter that required a gradient when
/// the layout was made has a slot in one of the buckets. Use it from its replica's thread only.
class GradientBuckets {
 public:
  /// Replaces the buckets by new ones, filled with zeros; gradients keep the memory of their old slots alive.
  /// `order` must be a permutation of the parameters' indices. Slots begin at multiples of `alignment` bytes;
  /// the gaps hold zeros. Buckets of float32 and float64 get memory to be rounded to `wire_dtype` in.
  void lay_out(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
               const BucketOptions& options, int64_t alignment = 1,
               std::optional<at::ScalarType> wire_dtype = std::nullopt);
  /// Returns true if no parameter's dtype, device, shape, strides or requires_grad has changed since
  /// lay_out().
  bool fit(const std::vector<at::Tensor>& parameters) const;

  size_t size() const { return buckets_.size(); }
  size_t num_parameters() const { return slots_.size(); }
  /// Returns the parameters with a slot in the bucket, in the order of the slots.
  const std::vector<size_t>& members(size_t bucket) const { return buckets_[bucket].members; }
  const at::Tensor& flat(size_t bucket) const { return buckets_[bucket].flat; }

  /// Returns all tensors that the buckets consist of, rounded copies included.
  std::vector<at::Tensor> tensors() const;

  /// Returns what is to be summed over the replicas: the bucket, or its rounded copy, which round() makes and
  /// take_back() writes to the bucket. These do nothing for a bucket that is not rounded, and allocate
  /// nothing.
  const at::Tensor& sent(size_t bucket) const {
    return buckets_[bucket].rounded.defined() ? buckets_[bucket].rounded : buckets_[bucket].flat;
  }
  void round(size_t bucket) const;
  void take_back(size_t bucket) const;

  bool has_slot(size_t parameter) const { return slots_[parameter].view.defined(); }
  size_t bucket_of(size_t parameter) const { return slots_[parameter].bucket; }
  /// Returns the parameter's slot in its flat bucket. It shares the bucket's memory but is not an autograd
  /// view.
  const at::Tensor& slot(size_t parameter) const { return slots_[parameter].view; }
  /// Returns true if `gradient` is stored in the parameter's bucket.
  bool holds(size_t parameter, const at::Tensor& gradient) const {
    // is_alias_of() would look at the data, which a pending gradient refuses.
    const auto storage_of = [](const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); };
    return gradient.defined() && gradient.layout() == at::kStrided &&
           storage_of(gradient) == storage_of(slots_[parameter].view);
  }

 private:
  struct Bucket {
    at::Tensor flat;
    at::Tensor rounded;  // undefined if the bucket is sent as it is
    std::vector<size_t> members;
  };
  struct Slot {
    size_t bucket = 0;
    at::Tensor view;  // undefined if the parameter required no gradient
  };
  struct Signature {
    at::ScalarType dtype;
    at::Device device;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  void add_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& members,
                  int64_t alignment, std::optional<at::ScalarType> wire_dtype);

  std::vector<Signature> signatures_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep
