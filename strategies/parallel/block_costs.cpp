#include "lockstep/strategies/parallel/block_costs.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/strategies/parallel/internal/split_backward.h"
#include "lockstep/strategies/parallel/internal/stage_parameters.h"

namespace lockstep {
namespace {

void check_cost_options(const BlockCostOptions& options) {
  if (options.warm_up >= 0 && options.repeats >= 1) return;
  throw InvalidArgument(
      c10::str("[measure_block_costs] expected a warm_up of 0 or more and at least 1 of repeats, but got ",
               options.warm_up, " and ", options.repeats));
}

/// Waits until the device has done its work.
void wait_for_device(torch::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

/// A forward and a backward of a block.
class MeasuredBlock {
 public:
  MeasuredBlock(const PipelineBlock& block, const BlockParameters& parameters, at::ScalarType autocast)
      : block_(block), autocast_(autocast) {
    for (const auto& [name, parameter] : parameters) parameters_.push_back(parameter);
  }

  /// Returns the seconds, and the result in place of the input.
  double pass(torch::Tensor& x) const {
    torch::Tensor input;
    if (x.is_floating_point()) x = input = x.detach().requires_grad_();
    wait_for_device(x.device());
    const auto begin = std::chrono::steady_clock::now();
    torch::Tensor result;
    {
      const AutocastGuard cast(x.device().type(), autocast_);
      result = block_.forward(x);
    }
    if (result.requires_grad()) run_backward(result, input, parameters_, torch::ones_like(result));
    wait_for_device(result.device());
    const auto end = std::chrono::steady_clock::now();
    x = result.detach();
    return std::chrono::duration<double>(end - begin).count();
  }

 private:
  const PipelineBlock& block_;
  const at::ScalarType autocast_;
  std::vector<torch::Tensor> parameters_;
};

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<double> measure_block_costs(const std::vector<PipelineBlock>& blocks,
                                        const torch::Tensor& example, const BlockCostOptions& options) {
  check_cost_options(options);
  const torch::AutoGradMode with_gradients(true);
  const auto parameters = parameters_of_blocks(blocks);
  std::vector<std::vector<double>> seconds(blocks.size());
  for (int pass = 0; pass < options.warm_up + options.repeats; ++pass) {
    torch::Tensor x = example;
    for (size_t i = 0; i < blocks.size(); ++i) {
      try {
        const double own = MeasuredBlock(blocks[i], parameters[i], options.autocast).pass(x);
        if (pass >= options.warm_up) seconds[i].push_back(own);
      } catch (c10::Error& error) {
        error.add_context("in the block " + blocks[i].name);
        throw;
      }
    }
  }
  std::vector<double> costs;
  for (auto& of_block : seconds) costs.push_back(median_of(std::move(of_block)));
  return costs;
}

std::vector<double> measure_block_costs(Strategy& strategy,
                                        const std::function<ModelOfBlocks(ReplicaContext&)>& make,
                                        const torch::Tensor& example, const BlockCostOptions& options) {
  check_cost_options(options);
  const auto on_rank = [&](ReplicaContext& replica) {
    const auto& axes = replica.axes();
    const bool is_first =
        std::all_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.index == 0; });
    std::vector<double> costs;
    if (is_first) {
      const at::Generator generator = replica.rank_generator().clone();
      const RankRandom apart(generator);
      const ModelOfBlocks made = make(replica);
      made.model->to(replica.device());
      costs = measure_block_costs(made.blocks, example.to(replica.device()), options);
    }
    // From axis to axis, more ranks have them.
    auto count = static_cast<int64_t>(costs.size());
    for (const auto& axis : axes) count = replica.axis(axis.name).sum_on_host(count);
    costs.resize(static_cast<size_t>(count));
    const torch::Tensor values = torch::tensor(costs, torch::kDouble).to(replica.device());
    for (const auto& axis : axes) replica.axis(axis.name).broadcast_(values);
    const torch::Tensor agreed = values.cpu();
    std::copy_n(agreed.const_data_ptr<double>(), costs.size(), costs.begin());
    return costs;
  };
  return strategy.run(on_rank)[0];
}

std::vector<PipelineBlock> blocks_of_modules(const torch::nn::Sequential& modules) {
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

}  // namespace lockstep
