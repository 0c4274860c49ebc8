#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep {

/// The flat memory that one replica's gradients are summed in. Every parameter that required a gradient when
/// the layout was made has a slot in one of the buckets. Used by its replica's thread only.
class GradientBuckets {
 public:
  /// Drops the buckets there are (gradients keep their slots' memory alive) and makes new ones, filled with
  /// zeros. `order` is a permutation of the parameters' indices.
  void lay_out(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
               const BucketOptions& options);
  /// Whether no parameter has changed its dtype, device, shape or requires_grad since.
  bool fit(const std::vector<at::Tensor>& parameters) const;

  size_t size() const { return buckets_.size(); }
  size_t num_parameters() const { return slots_.size(); }
  /// How many slots a bucket has.
  size_t num_slots(size_t bucket) const { return buckets_[bucket].num_slots; }
  const at::Tensor& flat(size_t bucket) const { return buckets_[bucket].flat; }

  bool has_slot(size_t parameter) const { return slots_[parameter].view.defined(); }
  size_t bucket_of(size_t parameter) const { return slots_[parameter].bucket; }
  /// The parameter's place in its flat bucket: shares its memory, is no autograd view.
  const at::Tensor& slot(size_t parameter) const { return slots_[parameter].view; }
  /// Whether `gradient` lies in the parameter's bucket.
  bool holds(size_t parameter, const at::Tensor& gradient) const {
    return gradient.defined() && gradient.layout() == at::kStrided &&
           gradient.is_alias_of(slots_[parameter].view);
  }

 private:
  struct Bucket {
    at::Tensor flat;
    size_t num_slots = 0;
  };
  struct Slot {
    size_t bucket = 0;
    at::Tensor view;  // undefined: the parameter required no gradient
  };
  struct Signature {
    at::ScalarType dtype;
    at::Device device;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  void add_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& members);

  std::vector<Signature> signatures_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep
