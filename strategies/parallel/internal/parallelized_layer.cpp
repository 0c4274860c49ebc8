#include "lockstep/strategies/parallel/internal/parallelized_layer.h"

#include <ATen/ops/embedding.h>
#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/parallel/internal/vocabulary_part.h"

namespace lockstep {

ParallelizedLayer::ParallelizedLayer(std::string name, std::vector<int64_t> sizes, const ReplicaAxis& axis,
                                     std::shared_ptr<LayerTrace> trace)
    : trace(std::move(trace)),
      name_(std::move(name)),
      sizes_(std::move(sizes)),
      axis_("parallelized '" + name_ + "'", axis) {}

void ParallelizedLayer::check_input(const at::Tensor& input) const {
  trace->last = name_;
  const int64_t whole = sizes_.back();
  const bool takes_part = cut && *cut->dim == 1 && linear.input_is_parallel;
  const int64_t expected = takes_part ? whole / axis_.size() : whole;
  if (input.dim() > 0 && input.size(-1) == expected) return;
  const int64_t given = input.dim() > 0 ? input.size(-1) : 0;
  std::string advice;
  if (takes_part && given == whole) {
    advice = c10::str(
        ", all of the features: no layer before it is cut. Add a line with ColwiseParallel for it to the "
        "plan, or cut '",
        name_, "' by RowwiseParallel{.input_is_parallel = false}");
  } else if (!takes_part && given * axis_.size() == whole) {
    advice = c10::str(", one of ", axis_.size(), " parts of the features",
                      trace->last_part.empty() ? "" : c10::str(", as '", trace->last_part, "' returns them"),
                      ": the plan misses a line with RowwiseParallel for '", name_,
                      "', or gather_output in the line of the layer before it");
  }
  throw InvalidArgument(
      c10::str("[parallelize] expected an input of [..., ", expected, "] for '", name_, "', which ",
               line.empty() ? "no line of the plan names" : c10::str("the plan cuts by ", line), ", but got ",
               input.sizes(), advice));
}

void ParallelizedLayer::check_norm(const at::Tensor& input) const {
  trace->last = name_;
  const int64_t whole = sizes_.back();
  if (input.dim() == 0 || input.size(-1) == whole || input.size(-1) * axis_.size() != whole) return;
  throw InvalidArgument(
      c10::str("[parallelize] expected an input of [..., ", whole, "] for '", name_, "', but got ",
               input.sizes(), ", one of ", axis_.size(), " parts of the features",
               trace->last_part.empty() ? "" : c10::str(", as '", trace->last_part, "' returns them"),
               ": norms are not cut, so add gather_output to the line of the layer before it"));
}

at::Tensor ParallelizedLayer::linear_input(const at::Tensor& input) const {
  check_input(input);
  if (!cut) return input;
  if (*cut->dim == 0) return axis_.copy_to_parts(input);
  return linear.input_is_parallel ? input : axis_.own_part(input, -1);
}

at::Tensor ParallelizedLayer::linear_output(const at::Tensor& output) const {
  if (!cut) return output;
  if (*cut->dim == 1) return axis_.sum_of_parts(output);
  return linear.gather_output ? axis_.gather_parts(output, -1) : output;
}

at::Tensor ParallelizedLayer::embedding(const at::Tensor& own_weight, const at::Tensor& ids,
                                        int64_t padding_idx) const {
  trace->last = name_;
  const int64_t padding = table.padding_idx.value_or(padding_idx);
  if (!cut) return at::embedding(own_weight, ids, padding);
  if (*cut->dim == 1) {
    const auto own = at::embedding(own_weight, ids, padding);
    return table.gather_output ? axis_.gather_parts(own, -1) : own;
  }
  check_ids(axis_.layer(), ids, sizes_.front());
  const int64_t rows = own_weight.size(0);
  const int64_t begin = axis_.index() * rows;
  const bool has_padding = padding >= begin && padding < begin + rows;
  const VocabularyPart part = part_of_ids(ids, begin, rows);
  const auto own = at::embedding(own_weight, part.local, has_padding ? padding - begin : -1);
  return axis_.sum_of_parts(own.masked_fill(part.is_elsewhere.unsqueeze(-1), 0));
}

void ParallelizedLayer::note(const at::Tensor& input, const at::Tensor& output, bool is_part) const {
  if (is_part) trace->last_part = name_;
  if (trace->observe) trace->observe(*this, input, output);
}

const ParallelizedLayer* parallelized_layer_of(const at::Tensor& weight) {
  if (!weight.defined()) return nullptr;
  const auto* mark = dynamic_cast<const LayerMark*>(weight.unsafeGetTensorImpl()->get_backend_meta());
  return mark != nullptr ? mark->layer().get() : nullptr;
}

}  // namespace lockstep
