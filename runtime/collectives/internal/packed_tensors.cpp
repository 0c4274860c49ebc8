#include "lockstep/runtime/collectives/internal/packed_tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/StringUtil.h>

#include <map>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"

namespace lockstep {

at::Tensor row_major_elements(const at::Tensor& tensor) {
  // A view that autograd knows would keep the tensor's history alive for as long as a backend keeps it.
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor plain = tensor.resolve_conj().resolve_neg().contiguous();
  return (plain.is_complex() ? at::view_as_real(plain) : plain).view({-1});
}

void copy_elements(const at::Tensor& flat, int64_t begin, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.is_complex()) {
    std::vector<int64_t> pairs = tensor.sizes().vec();
    pairs.push_back(2);
    tensor.copy_(at::view_as_complex(flat.narrow(0, begin, 2 * tensor.numel()).view(pairs)));
  } else {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
  }
}

std::vector<at::Tensor> equal_parts(const char* operation, const at::Tensor& whole, const at::Tensor& part,
                                    int size) {
  if (!whole.is_contiguous() || whole.scalar_type() != part.scalar_type() ||
      whole.numel() != size * part.numel()) {
    throw InvalidArgument(c10::str("[", operation, "] expected a contiguous tensor of ", size, " times",
                                   describe("", {part}), ", but got", describe("", {whole})));
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes.insert(sizes.begin(), size);
  return whole.view(sizes).unbind(0);
}

at::Tensor joined_parts(const std::vector<at::Tensor>& parts, int64_t most) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::vector<at::Tensor> flat;
  for (const auto& part : parts) flat.push_back(row_major_elements(part));
  const auto size = static_cast<int64_t>(flat.size());
  const auto follows = [&](int64_t i) {
    const at::Tensor& part = flat[static_cast<size_t>(i)];
    return part.numel() == most && part.is_alias_of(flat[0]) &&
           part.storage_offset() == flat[0].storage_offset() + i * most;
  };
  bool are_adjacent = true;
  for (int64_t i = 0; i < size; ++i) are_adjacent = are_adjacent && follows(i);
  if (are_adjacent) return flat[0].as_strided({size * most}, {1});
  const at::Tensor joined = at::empty({size, most}, flat[0].options());
  for (int64_t i = 0; i < size; ++i) {
    const at::Tensor& part = flat[static_cast<size_t>(i)];
    joined[i].narrow(0, 0, part.numel()).copy_(part);
  }
  return joined.view({-1});
}

PackedTensors::PackedTensors(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<size_t>> small;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.numel() > 0 && static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes)
      small[tensor.scalar_type()].push_back(i);
  }
  // Each pack takes the place of its first tensor.
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.numel() == 0) continue;
    const auto pack = small.find(tensor.scalar_type());
    const bool is_small = static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes;
    if (is_small && pack->second.size() > 1) {
      if (pack->second.front() != i) continue;
      std::vector<at::Tensor> pieces;
      int64_t begin = 0;
      for (const size_t member : pack->second) {
        pieces.push_back(row_major_elements(tensors[member]));
        copies_.push_back({flat_.size(), begin, tensors[member]});
        begin += pieces.back().numel();
      }
      flat_.push_back(at::cat(pieces));
    } else {
      flat_.push_back(row_major_elements(tensor));
      if (!flat_.back().is_alias_of(tensor)) copies_.push_back({flat_.size() - 1, 0, tensor});
    }
  }
}

void PackedTensors::copy_back() const {
  for (const auto& [flat, begin, tensor] : copies_) copy_elements(flat_[flat], begin, tensor);
}

}  // namespace lockstep
