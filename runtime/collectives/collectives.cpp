#include "lockstep/runtime/collectives/collectives.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/collectives/internal/packed_tensors.h"

namespace lockstep {
namespace {

/// Refuses outputs whose memory does not hold the values that they show, and lets autograd notice that they
/// change.
void prepare_output(const char* operation, const at::Tensor& output) {
  if (output.is_conj() || output.is_neg()) {
    throw InvalidArgument(
        std::string("[") + operation +
        "] expected outputs with values of their own, but got the conjugate or negative view of "
        "other ones");
  }
  output.unsafeGetTensorImpl()->bump_version();
}

/// Returns other handles of the same memory. The thread of a slower rank may keep what it got for a while
/// after the collective: with the tensors themselves, it would keep the graph that they get a place in.
std::vector<at::Tensor> handles_of(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

/// Throws InvalidArgument if an output's memory overlaps with an input's, other than by being the same, or
/// may do so.
void check_separate(const char* operation, const at::Tensor& output, const at::Tensor& input,
                    bool may_be_same = false) {
  const auto overlap = at::get_overlap_status(output, input);
  const bool is_same = overlap == at::MemOverlapStatus::Full;
  const bool is_unknown = overlap == at::MemOverlapStatus::TooHard && output.is_alias_of(input);
  if (overlap == at::MemOverlapStatus::Partial || is_unknown || (is_same && !may_be_same))
    throw InvalidArgument(std::string("[") + operation +
                          "] expected outputs that share no memory with inputs");
}

}  // namespace

void all_reduce_(c10d::Backend& backend, ReduceOp op, std::vector<at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  c10d::AllreduceOptions options;
  options.reduceOp = reduction_of(op);
  check_mean("all_reduce", options.reduceOp, tensors);
  tensors = handles_of(std::move(tensors));
  backend.allreduce(tensors, options)->wait();
}

void broadcast_(c10d::Backend& backend, int source, std::vector<at::Tensor> tensors) {
  check_source(source, backend.getSize());
  const at::NoGradGuard no_grad;
  c10d::BroadcastOptions options;
  options.rootRank = source;
  tensors = handles_of(std::move(tensors));
  backend.broadcast(tensors, options)->wait();
}

void reduce_scatter_(c10d::Backend& backend, ReduceOp op, const at::Tensor& output,
                     const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto parts = equal_parts("reduce_scatter", tensor, output, backend.getSize());
  for (int rank = 0; rank < backend.getSize(); ++rank)
    check_separate("reduce_scatter", output, parts[static_cast<size_t>(rank)], rank == backend.getRank());
  c10d::ReduceScatterOptions options;
  options.reduceOp = reduction_of(op);
  check_mean("reduce_scatter", options.reduceOp, {tensor});
  prepare_output("reduce_scatter", output);
  at::Tensor to = output.detach();
  at::Tensor from = tensor.detach().resolve_conj().resolve_neg();
  backend._reduce_scatter_base(to, from, options)->wait();
}

void all_gather_(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto parts = equal_parts("all_gather", output, tensor, backend.getSize());
  for (int rank = 0; rank < backend.getSize(); ++rank)
    check_separate("all_gather", parts[static_cast<size_t>(rank)], tensor, rank == backend.getRank());
  prepare_output("all_gather", output);
  at::Tensor to = output.detach();
  at::Tensor from = tensor.detach().resolve_conj().resolve_neg();
  backend._allgather_base(to, from)->wait();
}

void all_to_all_(c10d::Backend& backend, std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  for (const auto& output : outputs) {
    for (const auto& input : inputs) check_separate("all_to_all", output, input);
    prepare_output("all_to_all", output);
  }
  outputs = handles_of(std::move(outputs));
  for (auto& input : inputs) input = input.detach().resolve_conj().resolve_neg();
  backend.alltoall(outputs, inputs)->wait();
}

}  // namespace lockstep
