#include "lockstep/training/trainer/batch_statistics.h"

#include <torch/utils.h>

namespace lockstep::detail {
namespace {

/// The running mean that a probe begins with. It is so large that the mean of a batch vanishes, and the
/// momentum remains.
constexpr double kProbe = 0x1p100;

/// Below this momentum a layer does not learn statistics, or the probe held no examples.
constexpr double kLeastMomentum = 1e-6;

torch::Tensor find_buffer(const torch::nn::Module& module, const char* name) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  const auto* found = buffers.find(name);
  return found == nullptr ? torch::Tensor() : *found;
}

}  // namespace

BatchStatistics::BatchStatistics(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::nn::Module*> norms;
  for (const auto& part : module.modules()) {
    modes_.emplace_back(part.get(), part->is_training());
    Layer layer{.mean = find_buffer(*part, "running_mean"),
                .variance = find_buffer(*part, "running_var"),
                .count = find_buffer(*part, "num_batches_tracked")};
    if (!part->is_training() || !layer.mean.defined() || !layer.variance.defined()) continue;
    norms.push_back(part.get());
    layer.old_mean = layer.mean.clone();
    layer.old_variance = layer.variance.clone();
    if (layer.count.defined()) layer.old_count = layer.count.clone();
    layer.sum_of_means = torch::zeros_like(layer.mean, torch::kDouble);
    layer.sum_of_variances = torch::zeros_like(layer.sum_of_means);
    layer.num_batches = torch::zeros({}, layer.sum_of_means.options());
    layers_.push_back(std::move(layer));
  }
  module.eval();
  for (auto* norm : norms) norm->train();
}

BatchStatistics::~BatchStatistics() {
  // modules() lists a module before its children, and train() is recursive.
  for (const auto& [module, was_training] : modes_) module->train(was_training);
  if (!is_finished_) restore_statistics();
}

void BatchStatistics::restore_statistics() {
  const torch::NoGradGuard no_grad;
  for (auto& layer : layers_) {
    layer.mean.copy_(layer.old_mean);
    layer.variance.copy_(layer.old_variance);
    if (layer.count.defined()) layer.count.copy_(layer.old_count);
  }
}

void BatchStatistics::begin_probe() {
  begin_batch();
  const torch::NoGradGuard no_grad;
  for (auto& layer : layers_) layer.mean.fill_(kProbe);
}

void BatchStatistics::end_probe() {
  const torch::NoGradGuard no_grad;
  for (auto& layer : layers_) layer.decay = layer.mean.to(torch::kDouble).mean() / kProbe;
}

void BatchStatistics::begin_batch() {
  const torch::NoGradGuard no_grad;
  for (auto& layer : layers_) {
    layer.mean.zero_();
    layer.variance.zero_();
    // Without a momentum, a layer averages over as many batches as it has counted.
    if (layer.count.defined()) layer.count.zero_();
  }
}

void BatchStatistics::end_batch(bool is_empty) {
  const torch::NoGradGuard no_grad;
  for (auto& layer : layers_) {
    layer.sum_of_means += layer.mean;
    layer.sum_of_variances += layer.variance;
    torch::Tensor seen = torch::ones_like(layer.num_batches);
    // LibTorch's layers count an empty batch, but leave their statistics at 0. Lockstep's do not count it, or
    // take the statistics of the global batch.
    if (is_empty) seen *= layer.mean.ne(0).any() | layer.variance.ne(0).any();
    layer.num_batches += layer.count.defined() ? layer.count * seen : seen;
  }
}

void BatchStatistics::finish() {
  const torch::NoGradGuard no_grad;
  restore_statistics();
  for (auto& layer : layers_) {
    const double momentum = 1 - layer.decay.item<double>();
    const double weight = momentum * layer.num_batches.item<double>();
    if (momentum < kLeastMomentum || weight == 0) continue;
    layer.mean.copy_(layer.sum_of_means / weight);
    layer.variance.copy_(layer.sum_of_variances / weight);
  }
  is_finished_ = true;
}

}  // namespace lockstep::detail
