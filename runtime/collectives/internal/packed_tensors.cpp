#include "lockstep/runtime/collectives/internal/packed_tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
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

std::vector<at::Tensor> gathered_parts(const at::Tensor& output, const at::Tensor& input, int size) {
  if (!output.is_contiguous() || output.scalar_type() != input.scalar_type() ||
      output.numel() != size * input.numel()) {
    throw InvalidArgument(c10::str("[all_gather] expected a contiguous output for ", size, " times",
                                   describe("", {input}), ", but got", describe("", {output})));
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.insert(sizes.begin(), size);
  return output.view(sizes).unbind(0);
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
