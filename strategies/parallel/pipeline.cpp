#include "lockstep/strategies/parallel/pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/parallel/block_costs.h"

namespace lockstep {
namespace {

/// Returns `blocks`, which must have all parameters of `model`.
std::vector<PipelineBlock> complete_blocks(const torch::nn::Module& model,
                                           std::vector<PipelineBlock> blocks) {
  std::vector<torch::Tensor> known;
  for (const auto& block : blocks) {
    for (const auto& module : block.modules)
      for (const auto& parameter : module->parameters()) known.push_back(parameter);
  }
  for (const auto& item : model.named_parameters()) {
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&](const auto& other) { return other.is_same(item.value()); });
    if (!is_known)
      throw InvalidArgument("[Pipeline] expected each parameter of the model in a block, but none has " +
                            item.key());
  }
  return blocks;
}

}  // namespace

PipelineImpl::PipelineImpl(const ReplicaAxis& axis, const torch::nn::Sequential& blocks,
                           PipelineOptions options)
    : torch::nn::Module("Pipeline"), stages_(axis, blocks_of_modules(blocks), std::move(options)) {
  for (const auto& child : blocks->named_children()) register_module(child.key(), child.value());
}

PipelineImpl::PipelineImpl(const ReplicaAxis& axis, std::shared_ptr<torch::nn::Module> model,
                           std::vector<PipelineBlock> blocks, PipelineOptions options)
    : torch::nn::Module("Pipeline"),
      model_(std::move(model)),
      stages_(axis, complete_blocks(*model_, std::move(blocks)), std::move(options)) {
  for (const auto& item : model_->named_parameters(/*recurse=*/false))
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  for (const auto& item : model_->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
  for (const auto& child : model_->named_children()) register_module(child.key(), child.value());
}

void PipelineImpl::train(bool on) {
  torch::nn::Module::train(on);
  if (model_ != nullptr) model_->train(on);
}

void PipelineImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, dtype, non_blocking);
  stages_.moved();
}

void PipelineImpl::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  stages_.moved();
}

void PipelineImpl::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  stages_.moved();
}

}  // namespace lockstep
