#include "lockstep/runtime/gradients/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/devices/internal/tensor_memory.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

// Parts begin at whole cache lines, so that ranks of one process never write to the same one.
constexpr int64_t kPartAlignment = 64;

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.storage().nbytes()) : 0;
}

}  // namespace

void GradientBuckets::lay_out(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
                              const BucketOptions& options, int64_t alignment,
                              std::optional<at::ScalarType> wire_dtype,
                              const std::optional<BucketParts>& parts) {
  options_ = options;
  alignment_ = alignment;
  wire_dtype_ = wire_dtype;
  parts_ = parts;
  slots_.assign(parameters.size(), Slot{});
  buckets_.clear();
  extend(parameters, order);
}

void GradientBuckets::extend(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order) {
  signatures_.clear();
  for (const at::Tensor& parameter : parameters) {
    signatures_.push_back({parameter.scalar_type(), parameter.device(), parameter.sizes().vec(),
                           parameter.strides().vec(), parameter.requires_grad()});
  }
  add_buckets(parameters, order);
}

void GradientBuckets::rearrange(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order) {
  slots_.assign(parameters.size(), Slot{});
  buckets_.clear();
  add_buckets(parameters, order);
}

/// Adds buckets for those of the parameters in `order` that require a gradient and have no slot.
void GradientBuckets::add_buckets(const std::vector<at::Tensor>& parameters,
                                  const std::vector<size_t>& order) {
  std::vector<BucketItem> items;
  for (const at::Tensor& parameter : parameters) {
    items.push_back({static_cast<int64_t>(parameter.nbytes()),
                     std::string(c10::toString(parameter.scalar_type())) + ' ' + parameter.device().str() +
                         (is_slice(parameter) ? " of shards" : "")});
  }
  std::vector<size_t> trained;
  for (const size_t i : order) {
    if (signatures_[i].requires_grad && !has_slot(i)) trained.push_back(i);
  }
  for (const auto& members : assign_buckets(items, trained, options_)) add_bucket(parameters, members);
}

void GradientBuckets::add_bucket(const std::vector<at::Tensor>& parameters,
                                 const std::vector<size_t>& members) {
  const at::Tensor& first = parameters[members[0]];
  const auto element_size = static_cast<int64_t>(first.element_size());
  const int64_t unit = std::max<int64_t>(1, alignment_ / element_size);
  const auto padded = [unit](const at::Tensor& parameter) {
    return (parameter.numel() + unit - 1) / unit * unit;
  };
  int64_t numel = 0;
  for (const size_t i : members) numel += padded(parameters[i]);
  const bool has_shards = is_slice(first);
  const bool is_in_parts = parts_ && !has_shards;
  if (is_in_parts)
    numel = numel_in_parts(numel, parts_->count, std::max(unit, kPartAlignment / element_size));
  const at::NoGradGuard no_grad;
  const at::Tensor flat = at::zeros({numel}, first.options().requires_grad(false).layout(at::kStrided));
  int64_t offset = 0;
  for (const size_t i : members) {
    const at::Tensor& parameter = parameters[i];
    const bool dense = parameter.is_non_overlapping_and_dense();
    at::Tensor view = at::empty({0}, flat.options());
    view.set_(flat.storage(), offset, parameter.sizes(),
              dense ? parameter.strides() : at::empty(parameter.sizes(), at::kMeta).strides());
    slots_[i] = {buckets_.size(), std::move(view)};
    offset += padded(parameter);
  }
  Bucket bucket{.flat = flat, .rounded = {}, .members = members, .own_part = {}, .has_shards = has_shards};
  if (wire_dtype_ && (flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kDouble))
    bucket.rounded = at::zeros_like(flat, flat.options().dtype(*wire_dtype_));
  if (is_in_parts) {
    const int64_t part = numel / parts_->count;
    bucket.own_part =
        parts_->are_kept_apart ? at::zeros({part}, flat.options()) : flat.narrow(0, parts_->own * part, part);
  }
  buckets_.push_back(std::move(bucket));
  release(buckets_.size() - 1);
}

std::vector<BucketSlot> GradientBuckets::slots(size_t bucket) const {
  std::vector<BucketSlot> slots;
  for (const size_t i : members(bucket)) slots.push_back({i, slot(i).storage_offset(), slot(i).numel()});
  return slots;
}

at::Tensor GradientBuckets::received_part(size_t bucket) const {
  const at::Tensor& rounded = buckets_[bucket].rounded;
  if (!rounded.defined()) return own_part(bucket);
  const int64_t part = part_numel(bucket);
  return rounded.narrow(0, parts_->own * part, part);
}

void GradientBuckets::take_back_part(size_t bucket) const {
  at::Tensor own = own_part(bucket);
  if (buckets_[bucket].rounded.defined()) own.copy_(received_part(bucket));
}

void GradientBuckets::allocate(size_t bucket) const {
  const at::Tensor& flat = buckets_[bucket].flat;
  if (!is_kept_apart(bucket) || bytes_of(flat) > 0 || flat.numel() == 0) return;
  const at::NoGradGuard no_grad;
  allocate_memory(flat);
  if (buckets_[bucket].rounded.defined()) allocate_memory(buckets_[bucket].rounded);
  int64_t end = 0;
  for (const auto& slot : slots(bucket)) end = std::max(end, slot.begin + slot.length);
  flat.narrow(0, end, flat.numel() - end).zero_();
}

void GradientBuckets::release(size_t bucket) const {
  if (!is_kept_apart(bucket)) return;
  release_memory(buckets_[bucket].flat);
  if (buckets_[bucket].rounded.defined()) release_memory(buckets_[bucket].rounded);
}

int64_t GradientBuckets::bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bytes_of(bucket.flat) + bytes_of(bucket.rounded);
  return bytes;
}

int64_t GradientBuckets::bytes_apart() const {
  int64_t bytes = 0;
  for (size_t bucket = 0; bucket < size(); ++bucket)
    if (is_kept_apart(bucket)) bytes += bytes_of(own_part(bucket));
  return bytes;
}

std::vector<at::Tensor> GradientBuckets::tensors() const {
  std::vector<at::Tensor> tensors;
  for (size_t bucket = 0; bucket < size(); ++bucket) {
    if (is_kept_apart(bucket)) {
      tensors.push_back(own_part(bucket));
      continue;
    }
    tensors.push_back(flat(bucket));
    if (const auto& rounded = buckets_[bucket].rounded; rounded.defined()) tensors.push_back(rounded);
  }
  return tensors;
}

void GradientBuckets::round(size_t bucket) const {
  at::Tensor rounded = buckets_[bucket].rounded;
  if (rounded.defined()) rounded.copy_(buckets_[bucket].flat);
}

void GradientBuckets::take_back(size_t bucket) const {
  at::Tensor flat = buckets_[bucket].flat;
  if (buckets_[bucket].rounded.defined()) flat.copy_(buckets_[bucket].rounded);
}

bool GradientBuckets::fit(const std::vector<at::Tensor>& parameters) const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    const Signature& seen = signatures_[i];
    if (parameter.scalar_type() != seen.dtype || parameter.device() != seen.device ||
        parameter.requires_grad() != seen.requires_grad || parameter.sizes() != seen.sizes ||
        parameter.strides() != seen.strides) {
      return false;
    }
  }
  return true;
}

std::optional<size_t> GradientBuckets::find_changed(const std::vector<at::Tensor>& parameters) const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Signature& seen = signatures_[i];
    if (parameters[i].scalar_type() != seen.dtype || parameters[i].device() != seen.device ||
        parameters[i].sizes() != seen.sizes) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
