#include "lockstep/strategies/nn/internal/sync_batch_norm_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

class SyncBatchNormBackward final : public Node {
 public:
  explicit SyncBatchNormBackward(const SyncBatchNormCall& call)
      : replica_(call.replica),
        input_(call.dense, /*is_output=*/false),
        weight_(call.weight, /*is_output=*/false),
        statistics_(call.statistics),
        eps_(call.eps) {}

  std::string name() const override { return "SyncBatchNormBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      throw InvalidArgument(
          "[SyncBatchNorm] expected a backward without create_graph: second derivatives are not supported");
    }
    const std::lock_guard<std::mutex> one_at_a_time(mutex_);
    const at::Tensor input = input_.unpack();
    const at::Tensor weight = weight_.unpack();
    // A replica whose loss does not depend on its shard still takes part in the others' sum.
    const at::Tensor gradient = gradients[0].defined() ? gradients[0] : input_metadata(0).zeros_like();
    return input_gradients(gradient.contiguous(input.suggest_memory_format()), input, weight);
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> one_at_a_time(mutex_);
    input_.reset_data();
    weight_.reset_data();
  }

 private:
  variable_list input_gradients(const at::Tensor& gradient, const at::Tensor& input,
                                const at::Tensor& weight) {
    const batch_norm::Sums sums = batch_norm::local_sums(gradient, input, weight, statistics_, eps_);
    variable_list results(3);
    if (task_should_compute_output(0)) {
      const auto backend = replica_->backend("SyncBatchNorm");
      const WaitClock::Wait wait(replica_->waits());
      all_reduce_(*backend, ReduceOp::kSum, {sums.shared});
      results[0] = batch_norm::input_gradient(gradient, input, weight, statistics_, sums.shared, eps_);
    }
    // Only this replica's parts: the others are added when all parameters' gradients are summed.
    if (task_should_compute_output(1)) results[1] = sums.weight_gradient.to(weight.scalar_type());
    if (task_should_compute_output(2)) results[2] = sums.bias_gradient.to(weight.scalar_type());
    return results;
  }

  std::shared_ptr<const ReplicaCollectives> replica_;
  SavedVariable input_;
  SavedVariable weight_;
  batch_norm::Statistics statistics_;
  double eps_;
};

}  // namespace

void record_sync_batch_norm(const SyncBatchNormCall& call, at::Tensor& output) {
  const variable_list inputs{call.input, call.weight, call.bias};
  if (!at::GradMode::is_enabled() || !torch::autograd::any_variable_requires_grad(inputs)) return;
  const std::shared_ptr<Node> node(new SyncBatchNormBackward(call), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::create_gradient_edge(output, node);
}

}  // namespace lockstep
