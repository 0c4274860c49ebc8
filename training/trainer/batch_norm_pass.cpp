#include "lockstep/training/trainer/batch_norm_pass.h"

#include <torch/nn/modules/batchnorm.h>

#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/training/state/internal/replica_states.h"

namespace lockstep {
namespace {

/// Resets the module's statistics if it is a `Norm` that has some. Returns what restores its momentum.
template <typename Norm>
std::function<void()> reset_if(torch::nn::Module& module) {
  auto* norm = dynamic_cast<Norm*>(&module);
  if (norm == nullptr || !norm->running_mean.defined()) return nullptr;
  norm->reset_running_stats();
  const auto momentum = norm->options.momentum();
  norm->options.momentum(std::nullopt);  // the mean over all batches since the reset
  return [norm, momentum] { norm->options.momentum(momentum); };
}

}  // namespace

BatchNormPass::BatchNormPass(const FitState::Objects& objects) {
  const torch::NoGradGuard no_grad;
  for (const auto& model : objects.modules) {
    for (const auto& module : model->modules()) {
      for (const auto reset : {reset_if<torch::nn::BatchNorm1dImpl>, reset_if<torch::nn::BatchNorm2dImpl>,
                               reset_if<torch::nn::BatchNorm3dImpl>, reset_if<SyncBatchNormImpl>}) {
        if (auto restore = reset(*module)) restore_.push_back(std::move(restore));
      }
    }
  }
  if (restore_.empty()) return;
  generators_ = replica_generators(objects.strategy);
  for (auto& generator : generators_) random_states_.push_back(generator.get_state());
}

BatchNormPass::~BatchNormPass() {
  for (const auto& restore : restore_) restore();
  for (size_t i = 0; i < generators_.size(); ++i) generators_[i].set_state(random_states_[i]);
}

}  // namespace lockstep
