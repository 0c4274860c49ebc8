#include "lockstep/strategies/parallel/vocab_parallel_cross_entropy.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <ostream>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/parallel/internal/vocabulary_part.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

constexpr const char* kCrossEntropy = "VocabParallelCrossEntropy";

/// The targets as this rank sees them, with its place in the vocabulary.
struct Targets {
  VocabularyPart part;
  at::Tensor is_ignored;
  double smoothing = 0;
  int64_t vocabulary = 0;
};

/// With loss = lse(x) - (1 - s) x_target - s mean(x), the gradient for x is
/// softmax(x) - (1 - s) one_hot(target) - s / vocabulary.
class CrossEntropyBackward final : public Node {
 public:
  CrossEntropyBackward(const at::Tensor& logits, at::Tensor log_sums, Targets targets)
      : logits_(logits, /*is_output=*/false), log_sums_(std::move(log_sums)), targets_(std::move(targets)) {}

  std::string name() const override { return "VocabParallelCrossEntropyBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw InvalidArgument(c10::str("[", kCrossEntropy,
                                     "] expected a backward without create_graph: there are no "
                                     "second derivatives"));
    }
    if (!gradients[0].defined()) return {at::Tensor()};
    const at::Tensor logits = logits_.unpack();
    const at::Tensor scale = gradients[0].masked_fill(targets_.is_ignored, 0).unsqueeze(-1);
    at::Tensor result = logits.to(log_sums_.scalar_type()).sub(log_sums_.unsqueeze(-1)).exp_();
    if (targets_.smoothing > 0) result.sub_(targets_.smoothing / static_cast<double>(targets_.vocabulary));
    const at::Tensor own = at::where(targets_.part.is_elsewhere, at::zeros({}, result.options()),
                                     at::full({}, targets_.smoothing - 1, result.options()));
    result.scatter_add_(-1, targets_.part.local.unsqueeze(-1), own.unsqueeze(-1));
    return {result.mul_(scale).to(logits.scalar_type())};
  }

  void release_variables() override { logits_.reset_data(); }

 private:
  torch::autograd::SavedVariable logits_;
  at::Tensor log_sums_;
  Targets targets_;
};

void check_shapes(const at::Tensor& logits, const at::Tensor& targets) {
  const bool fits = logits.dim() == targets.dim() + 1 && logits.size(-1) > 0 &&
                    logits.sizes().slice(0, static_cast<size_t>(targets.dim())) == targets.sizes();
  if (fits && logits.is_floating_point()) return;
  throw InvalidArgument(
      c10::str("[", kCrossEntropy,
               "] expected logits [..., vocabulary / ranks] of floating-point numbers and targets "
               "[...], but got ",
               logits.scalar_type(), " ", logits.sizes(), " and ", targets.sizes()));
}

}  // namespace

VocabParallelCrossEntropyImpl::VocabParallelCrossEntropyImpl(const ReplicaAxis& axis,
                                                             const VocabParallelCrossEntropyOptions& options)
    : ParallelModule(kCrossEntropy, axis), options_(options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw InvalidArgument(c10::str("[", kCrossEntropy, "] expected label_smoothing from 0 to 1, but got ",
                                   options.label_smoothing));
  }
}

torch::Tensor VocabParallelCrossEntropyImpl::forward(const torch::Tensor& logits,
                                                     const torch::Tensor& targets) {
  check_shapes(logits, targets);
  const ParallelAxis& axis = parallel_axis();
  const int64_t own = logits.size(-1);
  const int64_t vocabulary = own * axis.size();
  check_ids(kCrossEntropy, targets, vocabulary, options_.ignore_index);
  at::Tensor losses;
  Targets seen{.smoothing = options_.label_smoothing, .vocabulary = vocabulary};
  at::Tensor log_sums;
  {
    const at::NoGradGuard no_grad;
    seen.is_ignored = targets.eq(options_.ignore_index);
    const at::Tensor ids = targets.to(at::kLong).masked_fill(seen.is_ignored, 0);
    seen.part = part_of_ids(ids, axis.index() * own, own);
    const bool is_short = logits.scalar_type() == at::kHalf || logits.scalar_type() == at::kBFloat16;
    const at::Tensor values = logits.detach().to(is_short ? at::kFloat : logits.scalar_type());
    const at::Tensor most = values.amax(-1);
    axis.maximum_(most);
    at::Tensor of_targets = values.gather(-1, seen.part.local.unsqueeze(-1)).squeeze(-1);
    of_targets = of_targets.masked_fill(seen.part.is_elsewhere, 0);
    std::vector<at::Tensor> sums{(values - most.unsqueeze(-1)).exp_().sum(-1), of_targets};
    if (seen.smoothing > 0) sums.push_back(values.sum(-1));
    const at::Tensor totals = at::stack(sums);
    axis.sum_(totals);
    log_sums = totals[0].log().add_(most);
    losses = log_sums - totals[1] * (1 - seen.smoothing);
    if (seen.smoothing > 0) losses.sub_(totals[2] * (seen.smoothing / static_cast<double>(vocabulary)));
    losses.masked_fill_(seen.is_ignored, 0);
  }
  const at::Tensor is_ignored = seen.is_ignored;
  if (at::GradMode::is_enabled() && logits.requires_grad()) {
    const std::shared_ptr<Node> node(new CrossEntropyBackward(logits, log_sums, std::move(seen)),
                                     torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(logits));
    torch::autograd::create_gradient_edge(losses, node);
  }
  if (options_.reduction == at::Reduction::None) return losses;
  if (options_.reduction == at::Reduction::Sum) return losses.sum();
  return losses.sum() / is_ignored.logical_not().sum();
}

void VocabParallelCrossEntropyImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::VocabParallelCrossEntropy(part " << parallel_axis().index() << " of "
         << parallel_axis().size() << ")";
}

}  // namespace lockstep
