#include "lockstep/strategies/parallel/pipeline.h"

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::vector<PipelineBlock> blocks_of(const torch::nn::Sequential& modules) {
  std::vector<PipelineBlock> blocks;
  const auto names = modules->named_children();
  for (size_t i = 0; i < modules->size(); ++i) {
    auto& module = *(modules->begin() + static_cast<std::ptrdiff_t>(i));
    blocks.push_back({.name = names[i].key(), .modules = {module.ptr()}, .forward = [module](const auto& x) {
                        auto called = module;
                        return called.template forward<torch::Tensor>(x);
                      }});
  }
  return blocks;
}

}  // namespace

PipelineImpl::PipelineImpl(const ReplicaAxis& axis, const torch::nn::Sequential& blocks,
                           PipelineOptions options)
    : torch::nn::Module("Pipeline"), stages_(axis, blocks_of(blocks), std::move(options)) {
  for (const auto& child : blocks->named_children()) register_module(child.key(), child.value());
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
