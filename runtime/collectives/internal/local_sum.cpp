#include "lockstep/runtime/collectives/internal/local_sum.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

bool can_be_cut(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous();
}

int64_t slice_elements(const at::Tensor& like, bool is_cut) {
  if (!is_cut) return like.numel();
  return std::max<int64_t>(1, kSumPartBytes / static_cast<int64_t>(like.element_size()));
}

at::Tensor slice_of(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return count == tensor.numel() ? tensor : tensor.view({-1}).narrow(0, begin, count);
}

at::ScalarType summable_dtype(at::ScalarType dtype) {
  const bool is_short = dtype == at::kBool || dtype == at::kByte || dtype == at::kChar || dtype == at::kShort;
  return is_short ? at::kInt : dtype;
}

void accumulate(c10d::ReduceOp::RedOpType op, at::Tensor& into, const at::Tensor& value) {
  const at::Tensor here = value.to(into.device());
  switch (op) {
    case c10d::ReduceOp::PRODUCT:
      into.mul_(here);
      break;
    case c10d::ReduceOp::MIN:
      at::minimum_out(into, into, here);
      break;
    case c10d::ReduceOp::MAX:
      at::maximum_out(into, into, here);
      break;
    default:
      into.add_(here);
  }
}

void check_own_memory(const std::vector<ReplicaRendezvous::Arrival>& arrivals, size_t index,
                      int first_replica) {
  const auto first = static_cast<size_t>(first_replica);
  for (size_t b = 1; b < arrivals.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      const at::Tensor& output = arrivals[a].outputs[index];
      if (output.numel() == 0 || output.const_data_ptr() != arrivals[b].outputs[index].const_data_ptr())
        continue;
      const std::string& call = arrivals[b].description;
      throw InvalidArgument(c10::str("[", call.substr(0, call.find(' ')),
                                     "] expected a tensor of its own from each replica, but replicas ",
                                     first + a, " and ", first + b, " gave the same memory (", call, ")"));
    }
  }
}

}  // namespace lockstep
