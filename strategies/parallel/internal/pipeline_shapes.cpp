#include "lockstep/strategies/parallel/internal/pipeline_shapes.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr int64_t kMostDims = 8;
constexpr int64_t kHeaderSize = kMostDims + 3;

}  // namespace

ActivationShape::ActivationShape(const torch::Tensor& value)
    : sizes_(value.sizes().vec()),
      dtype_(value.scalar_type()),
      is_channels_last_(value.dim() == 4 && !value.is_contiguous() &&
                        value.is_contiguous(at::MemoryFormat::ChannelsLast)) {}

torch::Tensor ActivationShape::header() const {
  const auto dims = static_cast<int64_t>(sizes_.size());
  if (dims > kMostDims) {
    throw InvalidArgument(c10::str("[Pipeline] expected results of stages with at most ", kMostDims,
                                   " dimensions, but got ", dims));
  }
  std::vector<int64_t> numbers{static_cast<int64_t>(dtype_), int64_t{is_channels_last_}, dims};
  numbers.insert(numbers.end(), sizes_.begin(), sizes_.end());
  numbers.resize(kHeaderSize);
  return torch::tensor(numbers, torch::kLong);
}

torch::Tensor ActivationShape::empty_header() {
  return torch::empty({kHeaderSize}, torch::kLong);
}

ActivationShape ActivationShape::of_header(const torch::Tensor& header) {
  const auto* numbers = header.const_data_ptr<int64_t>();
  ActivationShape shape;
  shape.dtype_ = static_cast<at::ScalarType>(numbers[0]);
  shape.is_channels_last_ = numbers[1] != 0;
  shape.sizes_.assign(numbers + 3, numbers + 3 + std::clamp<int64_t>(numbers[2], 0, kMostDims));
  return shape;
}

torch::Tensor ActivationShape::packed(const torch::Tensor& value) const {
  const torch::Tensor plain = value.detach();
  return (is_channels_last_ ? plain.permute({0, 2, 3, 1}) : plain).contiguous();
}

torch::Tensor ActivationShape::empty_packed(torch::Device device) const {
  auto sizes = sizes_;
  if (is_channels_last_) std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  return torch::empty(sizes, torch::dtype(dtype_).device(device));
}

torch::Tensor ActivationShape::unpacked(const torch::Tensor& packed) const {
  return is_channels_last_ ? packed.permute({0, 3, 1, 2}) : packed;
}

std::string ActivationShape::describe() const {
  return c10::str(c10::toString(dtype_), " ", at::IntArrayRef(sizes_));
}

const ActivationShape* PipelineShapes::find(const Key& key) const {
  const auto known = shapes_.find(key);
  return known == shapes_.end() ? nullptr : &known->second;
}

const ActivationShape& PipelineShapes::add(const Key& key, const ActivationShape& shape) {
  return shapes_.insert_or_assign(key, shape).first->second;
}

void PipelineShapes::check(const ActivationShape& known, const ActivationShape& shape,
                           const std::string& value) {
  if (shape == known) return;
  throw InvalidArgument(c10::str("[Pipeline] expected ", value, " to be ", known.describe(),
                                 " as for other inputs of this size, but got ", shape.describe()));
}

}  // namespace lockstep
