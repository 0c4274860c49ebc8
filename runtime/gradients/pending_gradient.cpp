#include "lockstep/runtime/gradients/pending_gradient.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr const char* kBegin = "[gradients] the gradient of ";

const char* text_of(PendingReason reason) {
  switch (reason) {
    case PendingReason::kSum:
      return " is being summed over the replicas, and cannot be read, changed or added to before the sum is "
             "there. To clip it, pass {.clip_norm = ...} to replica.apply_gradients(optimizer), which also "
             "steps: do not call optimizer.step(). To look at it or change it, call "
             "replica.reduce_gradients(optimizer) first. To run backward again, hold the earlier one's "
             "gradients with `auto hold = replica.accumulate();`, or drop them by zero_grad(), which must "
             "leave them undefined";
    case PendingReason::kShards:
      return " is sharded: each replica has the sum of its own part only. To step, call "
             "replica.apply_gradients(optimizer), and pass {.clip_norm = ...} to clip; do not call "
             "optimizer.step(). To look at the whole sum or change it, call "
             "replica.reduce_gradients(optimizer) first. To run backward again, apply the gradients or drop "
             "them by zero_grad(), which must leave them undefined";
    default:
      return " is sharded in stage 2: each replica keeps the sum of its own part only, so the whole cannot "
             "be read, changed or added to. To step, call replica.apply_gradients(optimizer), and pass "
             "{.clip_norm = ...} to clip; do not call optimizer.step(). To look at whole gradients, use "
             "stage 1, which keeps memory for them. To run backward again, apply the gradients or drop them "
             "by zero_grad(), which must leave them undefined";
  }
}

}  // namespace

at::Tensor pending_gradient(const at::Tensor& parameter, const std::string& name, PendingReason reason) {
  at::Tensor pending = at::empty({0}, parameter.options().requires_grad(false));
  auto* tensor = pending.unsafeGetTensorImpl();
  auto* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  // No memory has this size. Views of the tensor can be made, and throw when they are used.
  storage->set_nbytes(
      at::detail::computeStorageNbytes(parameter.sizes(), parameter.strides(), parameter.element_size()));
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(kBegin + name + text_of(reason));
  tensor->set_sizes_and_strides(parameter.sizes(), parameter.strides());
  return pending;
}

bool is_pending(const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.has_storage()) return false;
  auto* storage = gradient.storage().unsafeGetStorageImpl();
  return storage->nbytes() > 0 && storage->_mutable_data_ptr_no_checks().get() == nullptr;
}

void rethrow_pending(const std::string& message) {
  if (message.starts_with(kBegin)) throw InvalidArgument(message);
}

}  // namespace lockstep
