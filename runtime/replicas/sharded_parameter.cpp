#include "lockstep/runtime/replicas/sharded_parameter.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/accumulate.h>
#include <c10/util/intrusive_ptr.h>

#include <utility>

#include "lockstep/runtime/replicas/internal/parameter_mark.h"

namespace lockstep {
namespace {

class ShardMark final : public ParameterMark {
 public:
  explicit ShardMark(ShardedParameter shard) : shard_(std::move(shard)) {}
  const ShardedParameter* shard() const override { return &shard_; }

 private:
  const ShardedParameter shard_;
};

/// Returns whether a rank has all of the parameter, as a stage of a pipeline, or nothing.
bool is_whole_in_stage(const ShardedParameter& shard) {
  return shard.dim && shard.axis == shard.stage_axis;
}

at::Tensor in_order_of(const ShardedParameter& place, const at::Tensor& whole) {
  return at::empty_strided(place.sizes, place.strides, whole.options()).copy_(whole);
}

}  // namespace

int64_t ShardedParameter::num_elements() const {
  return c10::multiply_integers(sizes);
}

int64_t ShardedParameter::num_elements_along_axis() const {
  return cut != nullptr ? c10::multiply_integers(sizes_of_cut(*cut)) : num_elements();
}

std::vector<int64_t> sizes_of_cut(const ShardedParameter& cut) {
  auto own = cut.sizes;
  own.at(static_cast<size_t>(*cut.dim)) = cut.length;
  return own;
}

std::vector<CutRange> ranges_of_cut(const ShardedParameter& cut) {
  if (cut.sections.empty() || cut.length == 0) return {{.offset = cut.offset, .length = cut.length}};
  const int64_t ranks = cut.sizes.at(static_cast<size_t>(*cut.dim)) / cut.length;
  const int64_t index = cut.offset / cut.length;
  std::vector<CutRange> ranges;
  ranges.reserve(cut.sections.size());
  int64_t begin = 0;
  int64_t own_begin = 0;
  for (const int64_t section : cut.sections) {
    const int64_t share = section / ranks;
    ranges.push_back({.offset = begin + index * share, .own_offset = own_begin, .length = share});
    begin += section;
    own_begin += share;
  }
  return ranges;
}

at::Tensor part_of_cut(const at::Tensor& whole, const ShardedParameter& cut) {
  std::vector<at::Tensor> parts;
  for (const auto& range : ranges_of_cut(cut))
    parts.push_back(whole.narrow(*cut.dim, range.offset, range.length));
  if (parts.size() == 1) return parts.front().clone(at::MemoryFormat::Contiguous);
  return at::cat(parts, *cut.dim).contiguous();
}

at::Tensor part_of_values(const at::Tensor& whole, const ShardedParameter& part) {
  if (is_whole_in_stage(part) && part.length > 0) return in_order_of(part, whole);
  if (part.dim) return part_of_cut(whole, part);
  const auto slice = [&](const at::Tensor& ordered) {
    return ordered.as_strided({part.length}, {1}, ordered.storage_offset() + part.offset).clone();
  };
  if (part.cut != nullptr) return slice(part_of_cut(whole, *part.cut));
  return slice(in_order_of(part, whole));
}

ShardedParameter slice_of_parameter(const at::Tensor& parameter, std::string name, std::string axis,
                                    int64_t offset, int64_t length) {
  const auto* cut = sharded_parameter_of(parameter);
  const bool has_rows = cut != nullptr && !is_whole_in_stage(*cut);
  return {.name = std::move(name),
          .sizes = cut != nullptr ? cut->sizes : parameter.sizes().vec(),
          .strides = cut != nullptr ? cut->strides : parameter.strides().vec(),
          .offset = offset,
          .length = length,
          .axis = std::move(axis),
          .cut = has_rows ? std::make_shared<const ShardedParameter>(*cut) : nullptr,
          .stage_axis = cut != nullptr ? cut->stage_axis : "",
          .is_copy = cut != nullptr && cut->is_copy};
}

void mark_shard(const at::Tensor& tensor, ShardedParameter shard) {
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<ShardMark>(std::move(shard)));
}

const ShardedParameter* sharded_parameter_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const auto* mark = dynamic_cast<const ParameterMark*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  return mark != nullptr ? mark->shard() : nullptr;
}

std::string axis_of_rows(const at::Tensor& tensor) {
  const auto* cut = cut_of(tensor);
  return cut == nullptr || cut->axis == cut->stage_axis ? "" : cut->axis;
}

std::string axis_of_stages(const at::Tensor& tensor) {
  const auto* shard = sharded_parameter_of(tensor);
  return shard == nullptr ? "" : shard->stage_axis;
}

const ShardedParameter* cut_of(const at::Tensor& tensor) {
  const auto* shard = sharded_parameter_of(tensor);
  return shard == nullptr || shard->dim ? shard : shard->cut.get();
}

}  // namespace lockstep
