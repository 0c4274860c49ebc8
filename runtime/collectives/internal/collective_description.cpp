#include "lockstep/runtime/collectives/internal/collective_description.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void refuse_complex(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors,
                    const char* why) {
  for (const auto& tensor : tensors) {
    if (!tensor.is_complex()) continue;
    throw InvalidArgument(c10::str("[", operation, "] expected real tensors for a ", name_of(op),
                                   ", but got ", c10::toString(tensor.scalar_type()), why));
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

std::string describe_parts(const std::string& operation, const std::vector<at::Tensor>& parts) {
  const bool are_alike = std::all_of(parts.begin(), parts.end(), [&](const at::Tensor& part) {
    return part.scalar_type() == parts[0].scalar_type() && part.sizes() == parts[0].sizes();
  });
  return are_alike && parts.size() > 1 ? describe(operation + " for each replica", {parts[0]})
                                       : describe(operation, parts);
}

c10d::ReduceOp reduction_of(ReduceOp op) {
  return op == ReduceOp::kMean ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
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

void check_mean(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) {
  if (op != c10d::ReduceOp::AVG) return;
  for (const auto& tensor : tensors) {
    if (!tensor.is_floating_point() && !tensor.is_complex()) {
      throw InvalidArgument(c10::str("[", operation,
                                     "] expected a floating-point tensor for a mean, but got ",
                                     c10::toString(tensor.scalar_type())));
    }
  }
}

void check_extreme(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) {
  if (op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX)
    refuse_complex(operation, op, tensors, ", which has no order");
}

void check_product(const char* operation, const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) {
  if (op == c10d::ReduceOp::PRODUCT)
    refuse_complex(operation, op, tensors, ", whose product is not made here: gather the values instead");
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

void check_reduce_scatter(const std::vector<at::Tensor>& outputs,
                          const std::vector<std::vector<at::Tensor>>& inputs, int rank, int size) {
  if (outputs.size() != 1 || inputs.size() != 1 || inputs[0].size() != static_cast<size_t>(size))
    throw InvalidArgument(c10::str("[reduce_scatter] expected one output and ", size, " inputs"));
  const at::Tensor& own = inputs[0][static_cast<size_t>(rank)];
  if (outputs[0].sizes() != own.sizes() || outputs[0].scalar_type() != own.scalar_type()) {
    throw InvalidArgument(c10::str("[reduce_scatter] expected an output like input ", rank, " of replica ",
                                   rank, "'s list:", describe("", {own}), ", but got",
                                   describe("", {outputs[0]})));
  }
}

void check_all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int rank,
                      int size) {
  if (outputs.size() != static_cast<size_t>(size) || inputs.size() != static_cast<size_t>(size)) {
    throw InvalidArgument(c10::str("[all_to_all] expected a tensor for each of ", size, " replicas, but got ",
                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  const auto dtype = inputs[0].scalar_type();
  for (const auto* tensors : {&inputs, &outputs}) {
    for (const auto& tensor : *tensors) {
      if (tensor.scalar_type() == dtype) continue;
      throw InvalidArgument(c10::str("[all_to_all] expected tensors of one dtype, but got ",
                                     c10::toString(dtype), " and ", c10::toString(tensor.scalar_type())));
    }
  }
  const auto own = static_cast<size_t>(rank);
  if (outputs[own].sizes() != inputs[own].sizes()) {
    throw InvalidArgument(c10::str("[all_to_all] expected replica ", rank, "'s own output like its input:",
                                   describe("", {inputs[own]}), ", but got", describe("", {outputs[own]})));
  }
}

void check_equal_all_to_all(const at::Tensor& output, const at::Tensor& input,
                            const std::vector<int64_t>& output_sizes, const std::vector<int64_t>& input_sizes,
                            int size) {
  const bool is_equal = output_sizes.empty() && input_sizes.empty() && output.sizes() == input.sizes() &&
                        output.scalar_type() == input.scalar_type() && input.dim() > 0 &&
                        input.size(0) == size;
  if (is_equal && output.is_contiguous() && input.is_contiguous()) return;
  throw InvalidArgument(c10::str("[all_to_all] expected contiguous tensors of one shape with ", size,
                                 " rows, and no sizes, but got", describe("", {input, output})));
}

std::string differing_calls(const CollectiveCall& call, int replica, const std::string& description) {
  return c10::str("collective #", call.sequence, ": replica ", call.first_replica, " called ",
                  call.description, ", but replica ", replica, " called ", description,
                  "; all replicas must call the same collectives in the same order with the same shapes");
}

std::string returned_without_joining(const CollectiveCall& call, const std::string& missing) {
  return c10::str("replica ", call.first_replica, " called ", call.description, " (collective #",
                  call.sequence, "), but replica ", missing,
                  " returned without joining it; all replicas must call the same collectives");
}

std::string timed_out(const CollectiveCall& call, std::chrono::duration<double> after,
                      const std::string& missing) {
  return c10::str(call.description, " (collective #", call.sequence, ") timed out after ", after.count(),
                  " s; missing: replica ", missing);
}

std::string missing_ranks(const std::vector<char>& here, int first_rank, const RankNames& names) {
  std::string text;
  for (size_t i = 0; i < here.size(); ++i) {
    if (!here[i])
      text += (text.empty() ? "" : ", ") + std::to_string(names.replica_of(first_rank + static_cast<int>(i)));
  }
  return text;
}

}  // namespace lockstep
