// ShardedEmbedding's tables on parameter servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "lockstep/strategies/nn/sharded_embedding.h"
#include "lockstep/tests/support/table_job.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::Gt;

/// Numbers of workers, replicas of each, and shards; and when rows are read.
class ServedTableTest : public ::testing::TestWithParam<std::tuple<int, int, int, Reads>> {};

TEST_P(ServedTableTest, TrainsAsADenseTable) {
  const auto [workers, replicas, shards, reads] = GetParam();
  for (const auto& make : {sgd(), adagrad_of_rows()}) {
    const auto alone = trained_alone<DenseNet>(seeded<DenseNet>, bags(), make, {.schedule = kTableSchedule});
    TableJob tables(
        {.num_workers = workers,
         .replicas_per_worker = replicas,
         .parameters = {.partitioner = std::make_shared<FixedShardsPartitioner>(shards), .max_staleness = 0}},
        make, reads);
    tables.train(0, kTableSteps);
    const auto served = tables.served();
    EXPECT_LT(largest_difference(served, alone), 1e-12);
    for (size_t i = 0; i < 3; ++i) {
      const auto& table = tables.training().model.primary()->tables[i];
      EXPECT_TRUE(table->read_rows().equal(served[i]));
      EXPECT_TRUE(table->read_rows(4, 9).equal(served[i].slice(0, 4, 9)));
      EXPECT_EQ(table->read_rows(7, 7).sizes(), (std::vector<int64_t>{0, kTableColumns}));
    }
    EXPECT_EQ(tables.training().model.primary()->tables[0]->weight.storage().nbytes(), sizeof(double));
    tables.job().end();
  }
}

INSTANTIATE_TEST_SUITE_P(ServedEmbedding, ServedTableTest,
                         ::testing::Values(std::tuple(1, 1, 1, Reads::kAhead),
                                           std::tuple(2, 1, 5, Reads::kAhead),
                                           std::tuple(2, 1, 5, Reads::kWhenLookedUp),
                                           std::tuple(2, 2, 3, Reads::kAhead),
                                           std::tuple(2, 2, 3, Reads::kWhenLookedUp)));

TEST(ServedEmbedding, AStepReadsAllRowsByOneMessageToEachServer) {
  // Three tables, and two parameters of the layer behind them.
  const auto requests_of_steps = [](Reads reads) {
    TableJob tables(
        {.num_servers = 2,
         .num_workers = 1,
         .parameters = {.partitioner = std::make_shared<FixedShardsPartitioner>(2), .looks_ahead = false}},
        sgd(), reads);
    tables.train(0, 1);
    const auto requests = [&] {
      return std::vector<uint64_t>{tables.job().num_requests(0), tables.job().num_requests(1)};
    };
    const auto before = requests();
    tables.train(1, 11);
    const auto after = requests();
    tables.job().end();
    return std::vector<uint64_t>{after[0] - before[0], after[1] - before[1]};
  };
  EXPECT_THAT(requests_of_steps(Reads::kAhead), Each(20U));             // a pull and a push
  EXPECT_THAT(requests_of_steps(Reads::kWhenLookedUp), Each(Gt(40U)));  // and one for each table
}

TEST(ServedEmbedding, ServersTrainTheRowsThatItsFilterTakes) {
  // Ids 0 to 3 occur in every batch, the others in one each.
  const auto ids = torch::stack({torch::arange(kExamples) % 4, torch::arange(kExamples) + 4}, 1);
  ParameterServerJob job({.num_workers = 1, .parameters = {.max_staleness = 0}});
  std::mutex one_at_a_time;
  struct Training {
    Mirrored<ShardedEmbedding> table;
    Mirrored<OptimizerPointer> optimizer;
  };
  const auto prepare = [&](ParameterServerStrategy& strategy) {
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    auto options = table_options(EmbeddingMode::kSum);
    options.row_filter.min_frequency = 2;
    auto table = strategy.scope([&](ReplicaContext&) { return ShardedEmbedding(options); });
    auto optimizer =
        strategy.scope([&](ReplicaContext& replica) { return sgd()(table[replica]->parameters()); });
    const auto training = std::make_shared<Training>(Training{std::move(table), std::move(optimizer)});
    strategy.define_step("train",
                         strategy.step_batches(TensorDataset(ids, torch::zeros({kExamples})),
                                               {.global_batch_size = kBatchSize}),
                         [&strategy, training](const StepSlot&, PerReplica<Example>& batch) {
                           strategy.run(
                               [](ReplicaContext& replica, ShardedEmbedding& rows, OptimizerPointer& stepped,
                                  const Example& shard) {
                                 stepped->zero_grad();
                                 rows(shard.data).sum().backward();
                                 replica.apply_gradients(*stepped);
                               },
                               training->table, training->optimizer, batch);
                         });
    return training;
  };
  const auto training = prepare(job.chief());
  job.start_workers(prepare);
  constexpr int64_t kSteps = (kExamples + kBatchSize - 1) / kBatchSize;
  job.chief().run_steps("train", 0, kSteps, [](int64_t, const std::vector<ClosureValues>&) {});
  torch::Tensor served;
  job.chief().run(
      [&](ReplicaContext&, ShardedEmbedding& table) {
        const torch::NoGradGuard no_grad;
        served = table(torch::arange(kTableRows).unsqueeze(1));
      },
      training->table);
  job.end();
  // A row's gradient is 1 each time that it occurs in a batch, and the rate is 0.5.
  auto expected = initial_table(EmbeddingMode::kSum);
  for (int64_t row = 0; row < kTableRows; ++row) {
    int64_t batches = 0, times = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      const int64_t begin = step * kBatchSize;
      const auto count =
          (ids.narrow(0, begin, std::min(kBatchSize, kExamples - begin)) == row).sum().item<int64_t>();
      batches += count > 0 ? 1 : 0;
      if (count > 0 && batches >= 2) times += count;
    }
    expected[row] -= 0.5 * static_cast<double>(times);
  }
  EXPECT_LT(largest_difference({served}, {expected}), 1e-12);
  EXPECT_GT(largest_difference({served}, {initial_table(EmbeddingMode::kSum)}), 0.4);
}

}  // namespace
}  // namespace lockstep
