#pragma once

// A network of embedding tables, and data to train it with.

#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/nn/sharded_embedding.h"
#include "lockstep/strategies/nn/table_lookups.h"
#include "lockstep/tests/support/one_device_equivalence.h"

namespace lockstep {

constexpr int64_t kTableRows = 23;
constexpr int64_t kTableColumns = 3;

inline ShardedEmbeddingOptions table_options(EmbeddingMode mode) {
  return {.num_embeddings = kTableRows,
          .embedding_dim = kTableColumns,
          .mode = mode,
          .initial_values = NormalValues{.std = 0.5, .seed = static_cast<uint64_t>(mode) + 1},
          .dtype = torch::kDouble};
}

inline torch::Tensor initial_table(EmbeddingMode mode) {
  return make_values(table_options(mode).initial_values, {0, kTableRows},
                     torch::empty({0, kTableColumns}, torch::kDouble));
}

/// The same lookups with three of LibTorch's tables, whose gradients are dense.
struct DenseNetImpl : public torch::nn::Module {
  DenseNetImpl() {
    for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
      const auto name = "table" + std::to_string(tables.size());
      tables.push_back(register_parameter(name, initial_table(mode)));
    }
    head = register_module("head", torch::nn::Linear(3 * kTableColumns, 3));
    head->to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto whole = [&](size_t table) { return torch::embedding(tables[table], ids); };
    return head(torch::cat({whole(0).select(1, 0), whole(1).sum(1), whole(2).mean(1)}, 1));
  }
  std::vector<torch::Tensor> tables;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(DenseNet);

struct TableNetImpl : public torch::nn::Module {
  TableNetImpl() {
    for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
      const auto name = "table" + std::to_string(tables.size());
      tables.push_back(register_module(name, ShardedEmbedding(table_options(mode))));
    }
    head = register_module("head", torch::nn::Linear(3 * kTableColumns, 3));
    head->to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    return head(torch::cat({tables[0](ids.select(1, 0)), tables[1](ids), tables[2](ids)}, 1));
  }
  void list_lookups(const torch::Tensor& ids, TableLookups& lookups) const {
    lookups.add(tables[0], ids.select(1, 0));
    lookups.add(tables[1], ids);
    lookups.add(tables[2], ids);
  }
  std::vector<ShardedEmbedding> tables;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(TableNet);

template <typename Net>
Net seeded() {
  torch::manual_seed(17);
  return Net();
}

/// Bags of four ids. Some ids occur several times, and most are not in every batch.
inline Example bags() {
  torch::manual_seed(3);
  return {torch::randint(0, kTableRows, {kExamples, 4}), torch::randint(0, 3, {kExamples})};
}

inline MakeOptimizer sgd() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.5));
  };
}
inline MakeOptimizer adagrad_of_rows() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adagrad>(parameters, torch::optim::AdagradOptions(0.1));
  };
}

}  // namespace lockstep
