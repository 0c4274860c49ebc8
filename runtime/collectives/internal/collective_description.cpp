#include "lockstep/runtime/collectives/internal/collective_description.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void refuse_complex(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors, const char* why) {
  for (const auto& tensor : tensors) {
    if (!tensor.is_complex()) continue;
    throw InvalidArgument(c10::str("[all_reduce] expected real tensors for a ", name_of(op), ", but got ",
                                   c10::toString(tensor.scalar_type()), why));
  }
}

}  // namespace

std::string describe(const std::string& operation, const std::vector<at::Tensor>& tensors) {
  // Runs for every collective, so a few appends replace a stream.
  std::string text = operation;
  for (const auto& tensor : tensors) {
    text += ' ';
    text += c10::toString(tensor.scalar_type());
    text += '[';
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(tensor.size(i));
    }
    text += ']';
  }
  return text;
}

const char* name_of(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return "sum";
    case c10d::ReduceOp::AVG:
      return "mean";
    case c10d::ReduceOp::PRODUCT:
      return "product";
    case c10d::ReduceOp::MIN:
      return "minimum";
    case c10d::ReduceOp::MAX:
      return "maximum";
    default:
      throw InvalidArgument("[all_reduce] expected the reduction sum, mean, product, minimum or maximum");
  }
}

void check_mean(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) {
  if (op != c10d::ReduceOp::AVG) return;
  for (const auto& tensor : tensors) {
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      throw InvalidArgument(c10::str("[all_reduce] expected a floating-point tensor for a mean, but got ",
                                     c10::toString(tensor.scalar_type())));
    }
  }
}

void check_extreme(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) {
  if (op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX)
    refuse_complex(op, tensors, ", which has no order");
}

void check_product(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) {
  if (op == c10d::ReduceOp::PRODUCT)
    refuse_complex(op, tensors, ", whose product is not made here: gather the values instead");
}

void check_source(int64_t source, int size) {
  if (source >= 0 && source < size) return;
  throw InvalidArgument(
      c10::str("[broadcast] expected a source replica from 0 to ", size - 1, ", but got ", source));
}

void check_all_gather(const std::vector<std::vector<at::Tensor>>& outputs,
                      const std::vector<at::Tensor>& inputs, int rank, int size) {
  if (inputs.size() != 1 || outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(size)) {
    throw InvalidArgument(c10::str("[all_gather] expected one input and ", size, " outputs"));
  }
  const at::Tensor& own = outputs[0][static_cast<size_t>(rank)];
  if (inputs[0].sizes() != own.sizes() || inputs[0].scalar_type() != own.scalar_type()) {
    throw InvalidArgument(c10::str("[all_gather] expected an input like output ", rank, " of replica ", rank,
                                   "'s list:", describe("", {own}), ", but got", describe("", {inputs[0]})));
  }
}

std::string differing_calls(const CollectiveCall& call, int rank, const std::string& description) {
  return c10::str("collective #", call.sequence, ": replica ", call.first_rank, " called ", call.description,
                  ", but replica ", rank, " called ", description,
                  "; all replicas must call the same collectives in the same order with the same shapes");
}

std::string returned_without_joining(const CollectiveCall& call, const std::string& missing) {
  return c10::str("replica ", call.first_rank, " called ", call.description, " (collective #", call.sequence,
                  "), but replica ", missing,
                  " returned without joining it; all replicas must call the same collectives");
}

std::string timed_out(const CollectiveCall& call, std::chrono::duration<double> after,
                      const std::string& missing) {
  return c10::str(call.description, " (collective #", call.sequence, ") timed out after ", after.count(),
                  " s; missing: replica ", missing);
}

std::string missing_ranks(const std::vector<char>& here, int first_rank) {
  std::string text;
  for (size_t i = 0; i < here.size(); ++i) {
    if (!here[i]) text += (text.empty() ? "" : ", ") + std::to_string(first_rank + static_cast<int>(i));
  }
  return text;
}

}  // namespace lockstep
