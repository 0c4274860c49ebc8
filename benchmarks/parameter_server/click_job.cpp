// One process of a parameter-server job. It uses the same click model, optimizer and batches as its
// TensorFlow peer, benchmarks/peers/tensorflow_parameter_server.py.
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/benchmarks/parameter_server/click_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/models/wide_and_deep.h"
#include "lockstep/runtime/cluster/environment.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/sharded_embedding.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adagrad.h"
#include "lockstep/training/parameter_server/serve_parameters.h"

namespace lockstep::benchmarks {
namespace {

constexpr size_t kNumBatches = 64;
constexpr double kLearningRate = 0.05;
constexpr double kFirstSquares = 0.01;

/// Batches that are ready in memory. Each column has as many frequent and rare ids as in the batches that
/// train_ctr draws.
class ReadyBatches {
 public:
  explicit ReadyBatches(const ClickOptions& options) : batch_size_(static_cast<size_t>(options.batch_size)) {
    torch::manual_seed(1);
    std::vector<double> sizes;
    for (int column = 0; column < kClickCategories; ++column)
      sizes.push_back(std::round(8 * std::pow(2000.0 / 8, column / (kClickCategories - 1.0))));
    const auto counts = torch::tensor(sizes, torch::kDouble);
    const auto hashed = torch::randint(options.table_rows, {2001, kClickCategories}, torch::kLong);
    for (size_t i = 0; i < kNumBatches; ++i) {
      const auto numbers = torch::randn({options.batch_size, kClickNumbers}).mul(1.2).exp().log1p();
      const auto shares = torch::rand({options.batch_size, kClickCategories}, torch::kDouble);
      const auto ranks = torch::minimum(counts, (counts + 1).pow(shares)).to(torch::kLong);
      const auto labels = torch::rand({options.batch_size}).lt(0.3).to(torch::kFloat);
      batches_.emplace_back(std::make_tuple(numbers, hashed.gather(0, ranks)), labels);
    }
  }

  std::optional<size_t> size() const { return batches_.size() * batch_size_; }
  /// Returns a whole batch: steps without shuffling ask for nothing else.
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const { return batches_[indices[0] / batch_size_]; }

 private:
  size_t batch_size_;
  std::vector<ClickBatch> batches_;
};

class ClickModelImpl : public torch::nn::Module {
 public:
  explicit ClickModelImpl(const ClickOptions& options)
      : embeddings_(make_tables("embeddings", options, options.embedding_dim)),
        weights_(make_tables("weights", options, 1)),
        network_(
            register_module("network", WideAndDeep(WideAndDeepOptions{.num_numbers = kClickNumbers,
                                                                      .num_categories = kClickCategories,
                                                                      .embedding_dim = options.embedding_dim,
                                                                      .hidden_units = options.units}))) {}

  torch::Tensor forward(const ClickBatch& batch) {
    const auto& [numbers, ids] = batch.data;
    return network_(numbers, look_up(weights_, ids).sum(1).squeeze(1), look_up(embeddings_, ids));
  }
  void list_lookups(const ClickBatch& batch, TableLookups& lookups) const {
    for (const auto* tables : {&embeddings_, &weights_}) {
      for (size_t i = 0; i < tables->size(); ++i)
        lookups.add((*tables)[i], ids_of(*tables, std::get<1>(batch.data), i));
    }
  }

 private:
  using Tables = std::vector<ShardedEmbedding>;

  Tables make_tables(const std::string& name, const ClickOptions& options, int64_t columns) {
    const double limit = columns == 1 ? 0 : std::sqrt(1 / static_cast<double>(options.table_rows));
    Tables tables;
    for (int64_t i = 0; i < options.tables; ++i) {
      tables.push_back(register_module(
          name + std::to_string(i),
          ShardedEmbedding(ShardedEmbeddingOptions{
              .num_embeddings = options.table_rows,
              .embedding_dim = columns,
              .initial_values =
                  UniformValues{.low = -limit, .high = limit, .seed = static_cast<uint64_t>(i)}})));
    }
    return tables;
  }
  static torch::Tensor ids_of(const Tables& tables, const torch::Tensor& ids, size_t table) {
    return tables.size() == 1 ? ids : ids.select(1, static_cast<int64_t>(table));
  }
  static torch::Tensor look_up(Tables& tables, const torch::Tensor& ids) {
    if (tables.size() == 1) return tables[0](ids);
    std::vector<torch::Tensor> columns;
    for (size_t i = 0; i < tables.size(); ++i) columns.push_back(tables[i](ids_of(tables, ids, i)));
    return torch::stack(columns, 1);
  }

  Tables embeddings_;
  Tables weights_;
  WideAndDeep network_;
};
TORCH_MODULE(ClickModel);

torch::Tensor train_step(ReplicaContext& replica, ClickModel& model, FusedAdagrad& optimizer,
                         const ClickBatch& batch) {
  optimizer.zero_grad();
  const auto loss = compute_average_loss(replica, sigmoid_cross_entropy(model->forward(batch), batch.target));
  loss.backward();
  replica.apply_gradients(optimizer);
  return loss.detach();
}

int run(int argc, char** argv) {
  const auto options = parse_clicks(argc, argv);
  if (!options) return 0;
  const std::shared_ptr<const ClusterResolver> cluster = resolve_cluster(process_environment());
  if (cluster && cluster->task_type() == "ps") {
    serve_parameters(cluster);
    return 0;
  }
  ParameterServerStrategy strategy(cluster, {"cpu:0"}, {}, {.intra_op_threads = 1});
  auto model = strategy.scope([&](ReplicaContext&) { return ClickModel(*options); });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return FusedAdagrad(model[replica]->parameters(),
                        FusedAdagradOptions(kLearningRate).initial_accumulator_value(kFirstSquares));
  });
  const auto batches =
      strategy.step_batches(ReadyBatches(*options), {.global_batch_size = options->batch_size});
  strategy.define_step("train", batches,
                       [&](const StepSlot&, PerReplica<ClickBatch>& batch) {
                         return strategy.reduce(ReduceOp::kSum,
                                                strategy.run(train_step, model, optimizer, batch));
                       },
                       {.look_up = [&](const ClickBatch& batch, TableLookups& lookups) {
                         model.primary()->list_lookups(batch, lookups);
                       }});
  if (strategy.serve()) return 0;

  const int64_t steps = options->warmup_steps + options->steps;
  const auto ignore = [](int64_t, const std::vector<ClosureValues>&) {};
  strategy.run_steps("train", 0, options->warmup_steps, ignore);
  const auto begin = std::chrono::steady_clock::now();
  strategy.run_steps("train", options->warmup_steps, steps, ignore);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << "{\"rows_per_second\": "
            << static_cast<double>(options->steps * options->batch_size) / seconds.count() << "}"
            << std::endl;
  strategy.end();
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
