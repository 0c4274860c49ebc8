#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"

namespace lockstep {

/// A part of a model that a pipeline does not divide any further. Blocks follow one another: each maps what
/// the one before it returned to a tensor of the same number of rows.
struct PipelineBlock {
  std::string name;  ///< of its parameters' prefix, such as "blocks.3"
  /// The modules whose parameters and buffers it uses. Blocks may share modules, such as an embedding whose
  /// table is also that of the last layer.
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  /// Computes with the rows of a micro-batch, of which there may be none.
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};

struct PipelineOptions {
  /// See make_pipeline_schedule().
  std::string schedule = "1f1b";
  /// Parts of a replica's shard of the batch. Their sizes differ by at most 1.
  int micro_batches = 4;
  int stages_per_rank = 2;  ///< of the schedule "interleaved"
  /// Returns a schedule of your own in place of `schedule`, for numbers of ranks and micro-batches. Empty:
  /// none.
  std::function<PipelineSchedule(int ranks, int micro_batches)> make_schedule = {};
  /// The first block of each stage but the first. Empty: stages are cut so that the largest cost of a stage
  /// is as small as possible.
  std::vector<size_t> cuts = {};
  /// The cost of each block, such as the seconds that it takes. Empty: the bytes of its parameters.
  std::vector<double> costs = {};
};

/// Several batches that go forward through a pipeline.
struct PipelineInputs {
  std::vector<torch::Tensor> batches;  ///< Each has its examples along axis 0.
  int64_t first_number = 0;            ///< of the first batch, for errors
};

}  // namespace lockstep
