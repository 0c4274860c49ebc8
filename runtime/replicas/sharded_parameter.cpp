#include "lockstep/runtime/replicas/sharded_parameter.h"

#include <c10/util/accumulate.h>
#include <c10/util/intrusive_ptr.h>

#include <utility>

namespace lockstep {
namespace {

/// LibTorch's place for data that goes with a tensor and with its aliases.
struct ShardMark final : c10::BackendMeta {
  explicit ShardMark(ShardedParameter shard) : shard(std::move(shard)) {}
  const ShardedParameter shard;
};

}  // namespace

int64_t ShardedParameter::num_elements() const {
  return c10::multiply_integers(sizes);
}

void mark_shard(const at::Tensor& tensor, ShardedParameter shard) {
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<ShardMark>(std::move(shard)));
}

const ShardedParameter* sharded_parameter_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const auto* mark = dynamic_cast<const ShardMark*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  return mark != nullptr ? &mark->shard : nullptr;
}

}  // namespace lockstep
