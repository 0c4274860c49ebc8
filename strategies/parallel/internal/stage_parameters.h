#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/parallel/pipeline_block.h"

namespace lockstep {

/// The parameters of a block, each once, by their names in the model.
using BlockParameters = std::vector<std::pair<std::string, torch::Tensor>>;

/// Returns the parameters of each block.
std::vector<BlockParameters> parameters_of_blocks(const std::vector<PipelineBlock>& blocks);
/// Returns the bytes of a block's parameters, the same on all replicas: slices count with those of others.
double bytes_of_block(const BlockParameters& parameters);

/// The stages of a pipeline, as one of its ranks sees them.
struct StagePlaces {
  std::vector<size_t> firsts;      ///< the first block of each stage
  std::vector<int> rank_of_stage;  ///< ranks along the axis
  int rank = 0;                    ///< this one
  int num_ranks = 1;
  std::string axis;
};

/// The blocks' parameters and buffers, of which a rank of a pipeline keeps those of its stages.
class StageParameters {
 public:
  /// A parameter of the blocks of several ranks.
  struct Shared {
    torch::Tensor parameter;
    std::vector<int> ranks;  ///< in ascending order of their first stages
  };

  /// Frees the parameters of blocks that this rank does not have, and marks all of them (see
  /// ShardedParameter), unless it is the only one. `parameters` are those of `blocks`. Throws InvalidArgument
  /// naming a parameter without dimensions.
  StageParameters(const std::vector<PipelineBlock>& blocks, const std::vector<BlockParameters>& parameters,
                  const StagePlaces& places);

  /// Marks the parameters again: moving them to another device or dtype drops the marks.
  void mark() const;

  /// The parameters of the rank's blocks, each once.
  const std::vector<torch::Tensor>& own() const { return own_; }
  /// Those of other ranks only, which are empty here.
  const std::vector<torch::Tensor>& others() const { return others_; }
  const std::vector<Shared>& shared() const { return shared_; }
  /// Returns those of a stage as numbers in own(); none for a stage of another rank.
  const std::vector<size_t>& of_stage(int stage) const { return of_stages_[static_cast<size_t>(stage)]; }
  /// Returns whether replicas have slices of parameters, as those of sharded units and of experts, so that
  /// they compute some blocks together.
  bool has_slices() const;

 private:
  std::vector<torch::Tensor> own_;
  std::vector<torch::Tensor> others_;
  std::vector<std::vector<size_t>> of_stages_;
  std::vector<Shared> shared_;
  std::vector<std::pair<torch::Tensor, ShardedParameter>> marks_;
};

}  // namespace lockstep
