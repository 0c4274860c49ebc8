#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/parallel/pipeline_block.h"

namespace lockstep {

struct BlockCostOptions {
  int warm_up = 1;                          ///< passes that do not count
  int repeats = 5;                          ///< passes of which the median counts
  at::ScalarType autocast = torch::kFloat;  ///< See AutocastGuard.
};

/// A model and its blocks, which may refer to it.
struct ModelOfBlocks {
  std::shared_ptr<torch::nn::Module> model;
  std::vector<PipelineBlock> blocks;
};

/// Returns the seconds that each block takes forward and backward for `example`, a micro-batch, in the
/// calling thread: costs for PipelineOptions. Leaves gradients as they are. Blocks get the results of those
/// before them, so all of them are computed here. Throws InvalidArgument for options out of range, and errors
/// of blocks with the block's name.
std::vector<double> measure_block_costs(const std::vector<PipelineBlock>& blocks,
                                        const torch::Tensor& example, const BlockCostOptions& options = {});

/// Measures the blocks of the model that `make` returns, on the first rank of the strategy while the others
/// wait, and returns that rank's costs on all workers, which then cut their models alike. The model is whole,
/// with no layers that are cut along axes; it is moved to the rank's device and freed afterwards. Random
/// states stay as they are. A run of the strategy. Otherwise like the other overload.
///
/// Example:
///
///     const auto costs = measure_block_costs(strategy, [](ReplicaContext&) {
///       MobileNetV2 whole;
///       return ModelOfBlocks{whole.ptr(), whole->blocks()};
///     }, torch::randn({8, 3, 64, 64}));
///     auto model = strategy.scope([&](ReplicaContext& replica) {
///       MobileNetV2 whole;
///       return Pipeline(replica.axis("pipeline"), whole.ptr(), whole->blocks(), {.costs = costs});
///     });
std::vector<double> measure_block_costs(Strategy& strategy,
                                        const std::function<ModelOfBlocks(ReplicaContext&)>& make,
                                        const torch::Tensor& example, const BlockCostOptions& options = {});

/// Returns the modules of a Sequential, each of which maps one tensor to one, as blocks.
std::vector<PipelineBlock> blocks_of_modules(const torch::nn::Sequential& modules);

}  // namespace lockstep
