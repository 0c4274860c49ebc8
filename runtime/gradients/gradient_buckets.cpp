#include "lockstep/runtime/gradients/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {
void GradientBuckets::lay_out(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
                              const BucketOptions& options, int64_t alignment,
                              std::optional<at::ScalarType> wire_dtype) {
  signatures_.clear();
  slots_.assign(parameters.size(), Slot{});
  buckets_.clear();
  std::vector<BucketItem> items;
  for (const at::Tensor& parameter : parameters) {
    signatures_.push_back(
        {parameter.scalar_type(), parameter.device(), parameter.sizes().vec(), parameter.strides().vec()});
    items.push_back({static_cast<int64_t>(parameter.nbytes()),
                     std::string(c10::toString(parameter.scalar_type())) + ' ' + parameter.device().str()});
  }
  std::vector<size_t> trained;
  for (const size_t i : order) {
    if (parameters[i].requires_grad()) trained.push_back(i);
  }
  for (const auto& members : assign_buckets(items, trained, options))
    add_bucket(parameters, members, alignment, wire_dtype);
}

void GradientBuckets::add_bucket(const std::vector<at::Tensor>& parameters,
                                 const std::vector<size_t>& members, int64_t alignment,
                                 std::optional<at::ScalarType> wire_dtype) {
  const at::Tensor& first = parameters[members[0]];
  const int64_t unit = std::max<int64_t>(1, alignment / static_cast<int64_t>(first.element_size()));
  const auto padded = [unit](const at::Tensor& parameter) {
    return (parameter.numel() + unit - 1) / unit * unit;
  };
  int64_t numel = 0;
  for (const size_t i : members) numel += padded(parameters[i]);
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
  at::Tensor rounded;
  if (wire_dtype && (flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kDouble))
    rounded = at::zeros_like(flat, flat.options().dtype(*wire_dtype));
  buckets_.push_back({flat, rounded, members});
}

std::vector<at::Tensor> GradientBuckets::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const Bucket& bucket : buckets_) {
    tensors.push_back(bucket.flat);
    if (bucket.rounded.defined()) tensors.push_back(bucket.rounded);
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
        parameter.requires_grad() != has_slot(i) || parameter.sizes() != seen.sizes ||
        parameter.strides() != seen.strides) {
      return false;
    }
  }
  return true;
}

}  // namespace lockstep
