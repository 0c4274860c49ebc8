#include "lockstep/strategies/sharding/internal/unit_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/collectives/shared_gather.h"
#include "lockstep/runtime/devices/internal/tensor_memory.h"
#include "lockstep/runtime/gradients/slice_layout.h"
#include "lockstep/runtime/gradients/state_slice.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

int64_t rounded_up(int64_t number, int64_t unit) {
  return (number + unit - 1) / unit * unit;
}

/// Returns elements of a flat tensor as a tensor that is no view for autograd: a leaf, or a gradient.
at::Tensor leaf_of(const at::Tensor& flat, int64_t begin, int64_t length) {
  return at::empty({0}, flat.options()).set_(flat.storage(), flat.storage_offset() + begin, {length}, {1});
}

/// Backends sum real numbers.
at::Tensor as_real(const at::Tensor& flat) {
  return flat.is_complex() ? at::view_as_real(flat).flatten() : flat;
}

}  // namespace

UnitParameters::UnitParameters(std::vector<UnitParameter> parameters, Part part)
    : parameters_(std::move(parameters)), part_(std::move(part)) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = parameters_.front().tensor.options().requires_grad(false);
  element_size_ = parameters_.front().tensor.element_size();
  const int64_t aligned = std::max<int64_t>(1, kAlignment / element_size_);
  int64_t end = 0;
  for (const auto& [name, tensor] : parameters_) {
    begins_.push_back(end);
    sizes_.push_back(tensor.sizes().vec());
    strides_.push_back(tensor.strides().vec());
    places_.push_back(slice_of_parameter(tensor, name, part_.axis, 0, 0));
    end = rounded_up(end + tensor.numel(), aligned);
  }
  part_elements_ = numel_in_parts(end, part_.size, aligned) / part_.size;
  own_part_ = at::zeros({part_elements_}, options);
  make_storage();
  make_guards();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& tensor = parameters_[i].tensor;
    auto shard = shard_of(own_part_, i);
    if (shard.numel() > 0) shard.copy_(elements_of(tensor.detach(), offset_of(i), shard.numel()));
    shards_.push_back(shard.set_requires_grad(tensor.requires_grad()));
    mark(i);
    tensor.set_requires_grad(false);
    tensor.mutable_grad().reset();
    place(i, guards_[i]);
  }
  if (part_.size == 1) place(own_part_.storage());
}

/// Returns the first element of a parameter that this rank has, if it has any.
int64_t UnitParameters::offset_of(size_t index) const {
  return std::max(begins_[index], part_.index * part_elements_) - begins_[index];
}

void UnitParameters::mark(size_t index) const {
  ShardedParameter place = places_[index];
  place.length = shards_[index].numel();
  if (place.length > 0) place.offset = offset_of(index);
  mark_shard(shards_[index], std::move(place));
}

at::Tensor UnitParameters::shard_of(const at::Tensor& part, size_t index) const {
  const int64_t numel = c10::multiply_integers(sizes_[index]);
  const int64_t part_begin = part_.index * part_elements_;
  const int64_t begin = std::clamp(begins_[index], part_begin, part_begin + part_elements_);
  const int64_t end = std::clamp(begins_[index] + numel, part_begin, part_begin + part_elements_);
  return leaf_of(part, begin - part_begin, end - begin);
}

/// One storage for as long as the parameters stay on their device: the views that backward keeps share it.
void UnitParameters::make_storage() {
  whole_ = at::empty({0}, options());
  auto* tensor = whole_.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous({part_elements_ * part_.size});
}

void UnitParameters::make_guards() {
  guards_.clear();
  guards_.reserve(parameters_.size());
  for (const auto& [name, tensor] : parameters_) {
    const at::Tensor empty = at::empty({0}, options());
    auto* storage = empty.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    storage->set_nbytes(static_cast<size_t>(num_bytes()));
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
        c10::str("[Sharded] parameter '", name, "' of unit '", part_.unit,
                 "' is cut over the ranks, and is whole only while the unit's forward or backward runs: it "
                 "cannot be read, changed or used outside of them. Use it in the unit's forward only, and "
                 "return whatever has a gradient from there; the unit's parameters() are the shards"));
    guards_.push_back(empty.storage());
  }
}

void UnitParameters::rename(const std::string& unit) {
  part_.unit = unit;
  make_guards();
  if (part_.size > 1 && whole_.storage().nbytes() == 0) {
    for (size_t i = 0; i < parameters_.size(); ++i) place(i, guards_[i]);
  }
}

void UnitParameters::place(size_t index, const c10::Storage& storage) const {
  auto* tensor = parameters_[index].tensor.unsafeGetTensorImpl();
  tensor->set_allow_tensor_metadata_change(true);
  tensor->set_storage_keep_dtype(storage);
  tensor->set_sizes_and_strides(sizes_[index], strides_[index], begins_[index]);
}

void UnitParameters::place(const c10::Storage& storage) {
  for (size_t i = 0; i < parameters_.size(); ++i) place(i, storage);
}

bool UnitParameters::are_shards_in_place() const {
  return std::all_of(shards_.begin(), shards_.end(), [&](const at::Tensor& shard) {
    return shard.storage().is_alias_of(own_part_.storage());
  });
}

void UnitParameters::give_up() {
  const at::NoGradGuard no_grad;
  is_given_up_ = true;
  own_part_ = at::empty({0}, own_part_.options());
  if (part_.size == 1) hide();
  for (const auto& shard : shards_) shard.set_data(at::empty({0}, own_part_.options()));
}

void UnitParameters::follow_shards() {
  if (is_given_up_ || are_shards_in_place()) return;
  const auto& first = shards_.front();
  const at::NoGradGuard no_grad;
  own_part_ = at::zeros({part_elements_}, first.options().requires_grad(false));
  element_size_ = own_part_.element_size();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const auto shard = shard_of(own_part_, i);
    shard.copy_(shards_[i]);
    shards_[i].set_data(shard);
    mark(i);
  }
  make_storage();
  make_guards();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.set_data(at::empty({0}, options()));
    place(i, guards_[i]);
  }
  if (part_.size == 1) place(own_part_.storage());
}

c10::intrusive_ptr<c10d::Work> UnitParameters::begin_gather(c10d::Backend* backend) {
  if (part_.size == 1) return nullptr;
  const at::NoGradGuard no_grad;
  at::Tensor from = as_real(own_part_);
  is_shared_ = num_sharing(backend) > 1;
  if (is_shared_) {
    auto gather = dynamic_cast<SharesGathers&>(*backend).gather_shared(from);
    gathered_ = std::move(gather.whole);
    return gather.work;
  }
  allocate_memory(whole_);
  at::Tensor to = as_real(whole_);
  return backend->_allgather_base(to, from);
}

void UnitParameters::end_gather() {
  if (part_.size == 1) return;
  if (gathered_) alias_memory(whole_, *std::exchange(gathered_, nullptr));
  place(whole_.storage());
}

int UnitParameters::num_sharing(c10d::Backend* backend) const {
  const auto* sharing = dynamic_cast<const SharesGathers*>(backend);
  return sharing != nullptr && own_part_.is_cpu() && part_.size > 1 ? sharing->num_sharing() : 1;
}

void UnitParameters::hide() {
  if (part_.size == 1) return;
  for (size_t i = 0; i < parameters_.size(); ++i) place(i, guards_[i]);
}

void UnitParameters::free() {
  if (part_.size == 1) return;
  hide();
  release_memory(whole_);
}

void UnitParameters::abandon() {
  if (part_.size == 1) return;
  gathered_.reset();
  if (is_shared_) return free();  // The collective keeps what it uses.
  hide();
  make_storage();
}

UnitParameters::Sums UnitParameters::begin_sum(c10d::Backend* backend, std::vector<at::Tensor>& gradients,
                                               bool in_place) {
  const at::NoGradGuard no_grad;
  at::Tensor whole;
  if (in_place && !is_shared_) {
    whole = take_memory(whole_);
  } else {
    if (in_place) release_memory(whole_);  // Other ranks may still use it.
    whole = at::empty({part_elements_ * part_.size}, options());
  }
  int64_t end = 0;  // of what is filled
  const auto fill_to = [&](int64_t begin) { whole.narrow(0, end, begin - end).zero_(); };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t numel = c10::multiply_integers(sizes_[i]);
    fill_to(begins_[i]);
    end = begins_[i] + numel;
    const at::Tensor target = whole.as_strided(sizes_[i], strides_[i], begins_[i]);
    const at::Tensor gradient = std::exchange(gradients[i], at::Tensor());
    if (!gradient.defined()) {
      target.zero_();
    } else {
      target.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
    }
  }
  fill_to(whole.numel());
  Sums sums{.work = nullptr, .sent = whole, .of_shards = {}};
  at::Tensor own = whole;
  if (part_.size > 1) {
    own = at::empty({part_elements_}, options());
    at::Tensor to = as_real(own);
    at::Tensor from = as_real(whole);
    sums.work = backend->_reduce_scatter_base(to, from, {});
  }
  sums.of_shards.reserve(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) sums.of_shards.push_back(shard_of(own, i));
  return sums;
}

}  // namespace lockstep
