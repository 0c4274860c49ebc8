#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/models/dlrm.h"
#include "lockstep/models/wide_and_deep.h"
#include "lockstep/strategies/nn/sharded_embedding.h"
#include "lockstep/strategies/nn/table_lookups.h"

namespace lockstep::apps {

/// A click model with its embedding tables. The ids of all columns share one table.
class CtrModelImpl : public torch::nn::Module {
 public:
  explicit CtrModelImpl(const CtrWork& work);

  /// Returns the click logits [n] of n rows.
  torch::Tensor forward(const ClickBatch& batch);
  /// Adds the lookups that forward() will make for this batch.
  void list_lookups(const ClickBatch& batch, TableLookups& lookups) const;

  std::vector<ShardedEmbedding> tables() const;
  std::vector<torch::Tensor> table_parameters() const;
  std::vector<torch::Tensor> network_parameters() const;

 private:
  const torch::Dtype dtype_;
  ShardedEmbedding embeddings_{nullptr};
  ShardedEmbedding weights_{nullptr};  // wide_deep only, like wide_and_deep_
  WideAndDeep wide_and_deep_{nullptr};
  Dlrm dlrm_{nullptr};
};
TORCH_MODULE(CtrModel);

using CtrOptimizer = std::unique_ptr<torch::optim::Optimizer>;

/// Creates the optimizer of the network or of the tables, whose gradients are sparse.
CtrOptimizer make_network_optimizer(const CtrWork& work, std::vector<torch::Tensor> parameters);
CtrOptimizer make_table_optimizer(const CtrWork& work, std::vector<torch::Tensor> parameters);

}  // namespace lockstep::apps
