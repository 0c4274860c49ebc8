// GrowingEmbedding's tables on parameter servers.
#include "lockstep/strategies/nn/growing_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/table_job.h"
#include "lockstep/training/optimizers/fused_adagrad.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

GrowingEmbeddingOptions growing_options(const ShardedEmbeddingOptions& known) {
  return {.embedding_dim = known.embedding_dim,
          .mode = known.mode,
          .initial_values = known.initial_values,
          .max_bytes = 1 << 20,
          .dtype = known.dtype};
}

/// The net of tables with known rows, but its tables grow.
TableNet growing_net() {
  auto net = seeded<TableNet>();
  for (size_t i = 0; i < net->tables.size(); ++i) {
    net->tables[i] = GrowingEmbedding(growing_options(net->tables[i]->options())).sharded();
    net->replace_module("table" + std::to_string(i), net->tables[i]);
  }
  return net;
}

struct GrowingTraining {
  GrowingTraining(ParameterServerStrategy& strategy, const MakeOptimizer& make, Reads reads)
      : model(strategy.scope([](ReplicaContext&) { return growing_net(); })),
        optimizer(
            strategy.scope([&](ReplicaContext& replica) { return make(model[replica]->parameters()); })) {
    StepOptions<Example> options;
    if (reads == Reads::kAhead)
      options.look_up = [this](const Example& shard, TableLookups& lookups) {
        model.primary()->list_lookups(shard.data, lookups);
      };
    strategy.define_step(
        "train", strategy.step_batches(dataset_of_bags(), {.global_batch_size = kBatchSize}),
        [&strategy, this](const StepSlot&, PerReplica<Example>& batch) {
          strategy.run(plain_step<TableNet>, model, optimizer, batch);
        },
        options);
  }

  Mirrored<TableNet> model;
  Mirrored<OptimizerPointer> optimizer;
};

/// Optimizer of the servers, whose state is not made here, and of a dense table.
std::vector<std::pair<MakeOptimizer, MakeOptimizer>> optimizers_of_growing_tables() {
  const MakeOptimizer adagrad = [](const auto& parameters) {
    return std::make_unique<FusedAdagrad>(parameters, FusedAdagradOptions(0.1));
  };
  return {{sgd(), sgd()}, {adagrad, adagrad_of_rows()}};
}

class GrowingTableTest : public ::testing::TestWithParam<std::tuple<int, int, int, Reads>> {};

TEST_P(GrowingTableTest, TrainsAsADenseTable) {
  const auto [servers, workers, replicas, reads] = GetParam();
  for (const auto& [make, make_alone] : optimizers_of_growing_tables()) {
    const auto alone =
        trained_alone<DenseNet>(seeded<DenseNet>, bags(), make_alone, {.schedule = kTableSchedule});
    ParameterServerJob job({.num_servers = servers,
                            .num_workers = workers,
                            .replicas_per_worker = replicas,
                            .parameters = {.max_staleness = 0}});
    std::mutex one_at_a_time;
    const auto prepare = [&, &make = make, reads = reads](ParameterServerStrategy& strategy) {
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      return std::make_shared<GrowingTraining>(strategy, make, reads);
    };
    const auto training = prepare(job.chief());
    job.start_workers(prepare);
    job.chief().run_steps("train", 0, kTableSteps, [](int64_t, const std::vector<ClosureValues>&) {});
    std::vector<torch::Tensor> served;
    job.chief().run(
        [&](ReplicaContext& replica, TableNet& model) {
          if (replica.local_replica_id() != 0) return;
          const torch::NoGradGuard no_grad;
          const auto ids = torch::arange(kTableRows);
          served = {model->tables[0](ids), model->tables[1](ids.unsqueeze(1)),
                    model->tables[2](ids.unsqueeze(1)), model->head->weight.clone(),
                    model->head->bias.clone()};
        },
        training->model);
    EXPECT_THAT([&] { training->model.primary()->tables[0]->read_rows(0, 3); },
                ThrowsMessage<InvalidArgument>(HasSubstr("which have no order")));
    EXPECT_EQ(training->model.primary()->tables[0]->weight.storage().nbytes(), sizeof(double));
    job.end();
    EXPECT_LT(largest_difference(served, alone), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(GrowingEmbedding, GrowingTableTest,
                         ::testing::Values(std::tuple(1, 1, 1, Reads::kAhead),
                                           std::tuple(2, 2, 1, Reads::kWhenLookedUp),
                                           std::tuple(3, 2, 2, Reads::kAhead)));

TEST(GrowingEmbedding, IdsWithoutHashesHaveRowsOfTheirOwnAndOthersAreRefused) {
  const GrowingEmbedding table(GrowingEmbeddingOptions{.embedding_dim = 16});
  EXPECT_EQ(table->row_growth().num_bits, 55);
  const auto ids = torch::tensor({int64_t{0}, int64_t{1}, (int64_t{1} << 55) - 1}, torch::kLong);
  const auto rows = table->rows_of(ids);
  for (int64_t i = 0; i < ids.numel(); ++i)
    EXPECT_EQ(id_of_scattered_row(rows[i].item<int64_t>(), 55), ids[i].item<int64_t>());
  for (const int64_t wrong : {int64_t{-1}, int64_t{1} << 55})
    EXPECT_THAT([&] { table->rows_of(torch::full({1}, wrong, torch::kLong)); },
                ThrowsMessage<InvalidArgument>(HasSubstr("from 0 to 36028797018963967, or hash_ids")));
  EXPECT_THAT([&] { table->rows_of(torch::ones({1})); }, ThrowsMessage<InvalidArgument>(HasSubstr("int64")));
}

TEST(GrowingEmbedding, WithHashesAnyInt64IsAnId) {
  const GrowingEmbedding table(GrowingEmbeddingOptions{.embedding_dim = 16, .hash_ids = true});
  const auto small = torch::arange(1000);
  const auto large =
      torch::cat({-1 - torch::arange(1000), (torch::arange(1000) + (1 << 20)) * (int64_t{1} << 40),
                  torch::tensor({std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()})});
  const auto rows = table->rows_of(torch::cat({small, large}));
  EXPECT_GE(rows.min().item<int64_t>(), 0);
  EXPECT_LT(rows.max().item<int64_t>(), int64_t{1} << 55);
  // 3002 ids in 2^55 rows share one with a probability of 1e-10.
  EXPECT_EQ(std::get<0>(at::_unique(rows)).numel(), rows.numel());
  const GrowingEmbedding exact(GrowingEmbeddingOptions{.embedding_dim = 16});
  EXPECT_TRUE(rows.narrow(0, 0, 1000).equal(exact->rows_of(small)));
}

TEST(GrowingEmbedding, AStrategyWithoutServersAndWrongOptionsAreRefused) {
  MirroredStrategy strategy(std::vector<std::string>{"cpu:0"});
  const GrowingEmbeddingOptions options{.embedding_dim = 4};
  EXPECT_THAT([&] { strategy.scope([&](ReplicaContext&) { return GrowingEmbedding(options); }); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected a ParameterServerStrategy")));
  const auto made = [](const GrowingEmbeddingOptions& wrong) { return [wrong] { GrowingEmbedding{wrong}; }; };
  EXPECT_THAT(made({.embedding_dim = 0}), ThrowsMessage<InvalidArgument>(HasSubstr("columns, but got 0")));
  EXPECT_THAT(made({.embedding_dim = 4, .max_bytes = -1}),
              ThrowsMessage<InvalidArgument>(HasSubstr("max_bytes of 0 or more, but got -1")));
  std::ostringstream text;
  text << *GrowingEmbedding(GrowingEmbeddingOptions{.embedding_dim = 4, .max_bytes = 9});
  EXPECT_EQ(text.str(), "lockstep::GrowingEmbedding(embedding_dim=4, max_bytes=9)");
}

}  // namespace
}  // namespace lockstep
