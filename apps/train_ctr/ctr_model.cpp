#include "lockstep/apps/train_ctr/ctr_model.h"

#include <torch/optim/sgd.h>

#include <cmath>
#include <utility>

#include "lockstep/apps/train_ctr/ctr_table_memory.h"
#include "lockstep/strategies/nn/growing_embedding.h"
#include "lockstep/training/optimizers/fused_adagrad.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/optimizers/sparse_adam.h"

namespace lockstep::apps {
namespace {

/// Without it, Adagrad's first steps have full size whatever the gradients are. This is too large if several
/// workers take their first steps from the same values.
constexpr double kFirstSquares = 0.01;

torch::Dtype dtype_of(const CtrWork& work) {
  return work.precision == CtrPrecision::kFloat64 ? torch::kDouble : torch::kFloat;
}

/// Range of the initial values of embeddings whose number is not known.
constexpr double kGrowingRange = 0.01;

ShardedEmbedding make_table(const CtrWork& work, int64_t embedding_dim, EmbeddingMode mode,
                            const InitialValues& initial, int64_t max_bytes) {
  const RowFilter filter{.min_frequency = work.min_frequency, .steps_to_live = work.steps_to_live};
  if (!work.table_memory.empty())
    return GrowingEmbedding(GrowingEmbeddingOptions{.embedding_dim = embedding_dim,
                                                    .mode = mode,
                                                    .hash_ids = true,
                                                    .initial_values = initial,
                                                    .row_filter = filter,
                                                    .max_bytes = max_bytes,
                                                    .dtype = dtype_of(work)})
        .sharded();
  return ShardedEmbedding(ShardedEmbeddingOptions{.num_embeddings = work.table_rows,
                                                  .embedding_dim = embedding_dim,
                                                  .mode = mode,
                                                  .hash_ids = true,
                                                  .initial_values = initial,
                                                  .row_filter = filter,
                                                  .dtype = dtype_of(work)});
}

}  // namespace

CtrModelImpl::CtrModelImpl(const CtrWork& work) : dtype_(dtype_of(work)) {
  const auto memory = ctr_table_memory(work);
  // DLRM's authors initialize their tables like this, but here all columns have one size.
  const double range =
      work.table_memory.empty() ? std::sqrt(1 / static_cast<double>(work.table_rows)) : kGrowingRange;
  embeddings_ =
      register_module("embeddings", make_table(work, work.embedding_dim, EmbeddingMode::kNone,
                                               UniformValues{.low = -range, .high = range, .seed = work.seed},
                                               memory.embeddings));
  if (work.model == CtrModelKind::kDlrm) {
    dlrm_ = register_module("network", Dlrm(DlrmOptions{.num_numbers = kClickNumbers,
                                                        .num_categories = kClickCategories,
                                                        .embedding_dim = work.embedding_dim}));
    dlrm_->to(dtype_);
    return;
  }
  weights_ =
      register_module("weights", make_table(work, 1, EmbeddingMode::kSum, ConstantValues{}, memory.weights));
  wide_and_deep_ =
      register_module("network", WideAndDeep(WideAndDeepOptions{.num_numbers = kClickNumbers,
                                                                .num_categories = kClickCategories,
                                                                .embedding_dim = work.embedding_dim}));
  wide_and_deep_->to(dtype_);
}

torch::Tensor CtrModelImpl::forward(const ClickBatch& batch) {
  const auto& [numbers, ids] = batch.data;
  const auto converted = numbers.to(dtype_);
  const auto embedded = embeddings_(ids);
  if (dlrm_) return dlrm_(converted, embedded);
  return wide_and_deep_(converted, weights_(ids).squeeze(1), embedded);
}

void CtrModelImpl::list_lookups(const ClickBatch& batch, TableLookups& lookups) const {
  const auto& ids = std::get<1>(batch.data);
  lookups.add(embeddings_, ids);
  if (weights_) lookups.add(weights_, ids);
}

std::vector<ShardedEmbedding> CtrModelImpl::tables() const {
  std::vector<ShardedEmbedding> tables{embeddings_};
  if (weights_) tables.push_back(weights_);
  return tables;
}

std::vector<torch::Tensor> CtrModelImpl::table_parameters() const {
  std::vector<torch::Tensor> parameters;
  for (const auto& table : tables()) parameters.push_back(table->weight);
  return parameters;
}

std::vector<torch::Tensor> CtrModelImpl::network_parameters() const {
  return dlrm_ ? dlrm_->parameters() : wide_and_deep_->parameters();
}

CtrOptimizer make_network_optimizer(const CtrWork& work, std::vector<torch::Tensor> parameters) {
  switch (work.optimizer) {
    case CtrOptimizerKind::kSgd:
      return std::make_unique<FusedSgd>(std::move(parameters), work.learning_rate);
    case CtrOptimizerKind::kAdagrad:
      return std::make_unique<FusedAdagrad>(
          std::move(parameters),
          FusedAdagradOptions(work.learning_rate).initial_accumulator_value(kFirstSquares));
    case CtrOptimizerKind::kAdam:
      break;
  }
  return std::make_unique<FusedAdam>(std::move(parameters), work.learning_rate);
}

CtrOptimizer make_table_optimizer(const CtrWork& work, std::vector<torch::Tensor> parameters) {
  switch (work.optimizer) {
    case CtrOptimizerKind::kSgd:
      return std::make_unique<torch::optim::SGD>(std::move(parameters), work.learning_rate);
    case CtrOptimizerKind::kAdagrad:
      return std::make_unique<FusedAdagrad>(std::move(parameters), work.learning_rate);
    case CtrOptimizerKind::kAdam:
      break;
  }
  return std::make_unique<SparseAdam>(std::move(parameters), work.learning_rate);
}

}  // namespace lockstep::apps
