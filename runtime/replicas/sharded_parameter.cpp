#include "lockstep/runtime/replicas/sharded_parameter.h"

#include <ATen/ops/cat.h>
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

}  // namespace

int64_t ShardedParameter::num_elements() const {
  return c10::multiply_integers(sizes);
}

std::vector<CutRange> ranges_of_cut(const ShardedParameter& cut) {
  if (cut.sections.empty()) return {{.offset = cut.offset, .length = cut.length}};
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

void mark_shard(const at::Tensor& tensor, ShardedParameter shard) {
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<ShardMark>(std::move(shard)));
}

const ShardedParameter* sharded_parameter_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const auto* mark = dynamic_cast<const ParameterMark*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  return mark != nullptr ? mark->shard() : nullptr;
}

}  // namespace lockstep
