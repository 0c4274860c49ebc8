#include "lockstep/tests/support/fake_nccl_stream.h"

namespace lockstep {

void execute(const FakeNccl::Call& own, const std::vector<FakeNccl::Call>& all) {
  at::Tensor output = own.output;
  for (const auto& other : all) {
    if (other.type == own.type && other.input.numel() == own.input.numel() &&
        other.input.scalar_type() == own.input.scalar_type())
      continue;
    const at::Tensor garbage = at::empty_like(output, output.options().device(at::kCPU));
    std::memset(garbage.data_ptr(), 0xA5, garbage.nbytes());
    output.copy_(garbage);  // NCCL's result would be arbitrary
    return;
  }
  if (own.type == c10d::OpType::ALLTOALL) {
    for (size_t from = 0; from < all.size(); ++from) {
      const at::Tensor& sent = all[from].inputs[own.rank];
      if (sent.numel() == own.outputs[from].numel()) own.outputs[from].copy_(sent);
    }
  } else if (own.type == c10d::OpType::BROADCAST) {
    output.copy_(all[static_cast<size_t>(own.source)].input);
  } else if (own.type == c10d::OpType::ALLGATHER) {
    for (size_t rank = 0; rank < all.size(); ++rank)
      output[static_cast<int64_t>(rank)].copy_(all[rank].input);
  } else {
    at::Tensor total = all[0].input.clone();
    for (size_t rank = 1; rank < all.size(); ++rank) {
      const at::Tensor& value = all[rank].input;
      if (own.reduction == c10d::ReduceOp::MAX) {
        total = at::maximum(total, value);
      } else if (own.reduction == c10d::ReduceOp::MIN) {
        total = at::minimum(total, value);
      } else if (own.reduction == c10d::ReduceOp::PRODUCT) {
        total.mul_(value);
      } else {
        total.add_(value);
      }
    }
    if (own.reduction == c10d::ReduceOp::AVG) total.div_(static_cast<int64_t>(all.size()));
    const bool is_scattered = own.type == c10d::OpType::_REDUCE_SCATTER_BASE;
    output.copy_(is_scattered ? total.chunk(static_cast<int64_t>(all.size()))[own.rank] : total);
  }
}

}  // namespace lockstep
