#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/parallel/pipeline_block.h"

namespace lockstep {

/// The blocks' parameters and buffers, of which a rank of a pipeline keeps those of its stages.
class StageParameters {
 public:
  /// A parameter of the blocks of several ranks.
  struct Shared {
    torch::Tensor parameter;
    std::vector<int> ranks;  ///< in ascending order of their first stages
  };

  /// Frees the parameters of blocks that `rank` does not have, and marks all of them (see ShardedParameter),
  /// unless `num_ranks` is 1. `ranks_of_blocks` has the rank of each block. Throws InvalidArgument naming a
  /// parameter without dimensions.
  StageParameters(const std::vector<PipelineBlock>& blocks, const std::vector<int>& ranks_of_blocks, int rank,
                  int num_ranks, const std::string& axis);

  /// Marks the parameters again: moving them to another device or dtype drops the marks.
  void mark() const;

  /// The parameters of the rank's blocks, each once.
  const std::vector<torch::Tensor>& own() const { return own_; }
  /// Those of other ranks only, which are empty here.
  const std::vector<torch::Tensor>& others() const { return others_; }
  const std::vector<Shared>& shared() const { return shared_; }
  /// Returns whether replicas have slices of parameters, as those of sharded units and of experts, so that
  /// they compute some blocks together.
  bool has_slices() const;
  /// Returns the parameters of a block, each once.
  static std::vector<torch::Tensor> of_block(const PipelineBlock& block);
  /// Returns the bytes of a block's parameters, the same on all replicas: slices count with those of others.
  static double bytes_of_block(const PipelineBlock& block);

 private:
  std::vector<torch::Tensor> own_;
  std::vector<torch::Tensor> others_;
  std::vector<Shared> shared_;
  std::vector<std::pair<torch::Tensor, ShardedParameter>> marks_;
};

}  // namespace lockstep
