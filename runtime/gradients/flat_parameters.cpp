#include "lockstep/runtime/gradients/flat_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collective_channel.h"

namespace lockstep {
namespace {

/// Gathers that are under way at a time. Between workers, each may need as much memory again as its bucket
/// has.
constexpr size_t kMostGathers = 2;

bool has_memory_of(const at::Tensor& parameter, const at::Tensor& home) {
  return parameter.has_storage() &&
         parameter.storage().unsafeGetStorageImpl() == home.storage().unsafeGetStorageImpl() &&
         parameter.storage_offset() == home.storage_offset() && parameter.strides() == home.strides();
}

}  // namespace

void refuse_changed_parameter(const std::string& name) {
  throw InvalidArgument(
      c10::str("[sharding] ", name,
               " has changed its dtype, device or shape since scope() made the optimizer, whose state is "
               "divided among the replicas: make a new optimizer in scope"));
}

FlatParameters::FlatParameters(std::vector<at::Tensor> parameters, std::function<std::string(size_t)> name_of)
    : parameters_(std::move(parameters)), name_of_(std::move(name_of)), homes_(parameters_.size()) {
  check_overlaps();
}

void FlatParameters::check_overlaps() const {
  struct Range {
    const char* begin;
    const char* end;
    size_t parameter;
  };
  std::vector<Range> ranges;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    if (parameter.numel() == 0 || !parameter.has_storage()) continue;
    int64_t last = 0;
    for (int64_t dim = 0; dim < parameter.dim(); ++dim)
      last += (parameter.size(dim) - 1) * parameter.stride(dim);
    const auto* begin = static_cast<const char*>(parameter.const_data_ptr());
    ranges.push_back({begin, begin + (last + 1) * static_cast<int64_t>(parameter.element_size()), i});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::less<>()(a.begin, b.begin); });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (!std::less<>()(ranges[i].begin, ranges[i - 1].end)) continue;
    throw InvalidArgument(c10::str("[sharding] expected parameters with memory of their own, but ",
                                   name_of_(ranges[i - 1].parameter), " and ", name_of_(ranges[i].parameter),
                                   " share some: tie weights by using one tensor twice"));
  }
}

void FlatParameters::add_bucket(const GradientBuckets& buckets, size_t bucket) {
  const auto& members = buckets.members(bucket);
  const at::TensorOptions options =
      parameters_[members[0]].options().requires_grad(false).layout(at::kStrided);
  const bool is_in_parts = buckets.is_in_parts(bucket);
  flat_.push_back(at::zeros({is_in_parts ? buckets.numel(bucket) : 0}, options));
  if (!is_in_parts) return;
  for (const size_t i : members) {
    const at::Tensor& slot = buckets.slot(i);
    homes_[i] = at::empty({0}, options);
    homes_[i].set_(flat_.back().storage(), slot.storage_offset(), slot.sizes(), slot.strides());
  }
}

void FlatParameters::adopt(const GradientBuckets& buckets) {
  const at::NoGradGuard no_grad;
  while (flat_.size() < buckets.size()) add_bucket(buckets, flat_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i];
    at::Tensor& home = homes_[i];
    if (!home.defined()) continue;
    if (parameter.sizes() != home.sizes() || parameter.scalar_type() != home.scalar_type() ||
        parameter.device() != home.device())
      refuse_changed_parameter(name_of_(i));
    if (has_memory_of(parameter, home)) continue;
    home.copy_(parameter);
    auto mark = parameter.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr();
    parameter.set_data(home);  // the same tensor for its users
    if (mark) parameter.unsafeGetTensorImpl()->set_backend_meta(std::move(mark));  // see ParameterMark
  }
}

void FlatParameters::gather(c10d::Backend& backend) const {
  const at::NoGradGuard no_grad;
  std::deque<c10::intrusive_ptr<c10d::Work>> works;
  const auto wait_for_first = [&works] {
    works.front()->wait(kNoTimeout);
    works.pop_front();
  };
  for (size_t i = flat_.size(); i-- > 0;) {  // the next forward begins with the last bucket
    at::Tensor whole = flat_[i];
    if (whole.numel() == 0) continue;
    const int64_t length = whole.numel() / backend.getSize();
    at::Tensor part = whole.narrow(0, backend.getRank() * length, length);
    if (works.size() == kMostGathers) wait_for_first();
    works.push_back(backend._allgather_base(whole, part));
  }
  while (!works.empty()) wait_for_first();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (homes_[i].defined()) parameters_[i].unsafeGetTensorImpl()->bump_version();
  }
}

int64_t FlatParameters::bytes() const {
  int64_t bytes = 0;
  for (const auto& flat : flat_) bytes += static_cast<int64_t>(flat.nbytes());
  return bytes;
}

}  // namespace lockstep
