#include "lockstep/strategies/sharded_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/strategies/losses.h"
#include "lockstep/tests/strategies/message_of.h"
#include "lockstep/tests/strategies/one_device_equivalence.h"
#include "lockstep/tests/strategies/parameter_server_job.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;

constexpr int64_t kRows = 23;
constexpr int64_t kColumns = 3;

ShardedEmbeddingOptions table_options(EmbeddingMode mode) {
  return {.num_embeddings = kRows,
          .embedding_dim = kColumns,
          .mode = mode,
          .initial_values = NormalValues{.std = 0.5, .seed = static_cast<uint64_t>(mode) + 1},
          .dtype = torch::kDouble};
}

torch::Tensor initial_table(EmbeddingMode mode) {
  return make_values(table_options(mode).initial_values, {0, kRows},
                     torch::empty({0, kColumns}, torch::kDouble));
}

/// The same lookups by three tables of LibTorch's, whose gradients are dense.
struct DenseNetImpl : public torch::nn::Module {
  DenseNetImpl() {
    for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
      const auto name = "table" + std::to_string(tables.size());
      tables.push_back(register_parameter(name, initial_table(mode)));
    }
    head = register_module("head", torch::nn::Linear(3 * kColumns, 3));
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
    head = register_module("head", torch::nn::Linear(3 * kColumns, 3));
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

/// Bags of four ids, some of which come several times, and most of which no batch has in common.
Example bags() {
  torch::manual_seed(3);
  return {torch::randint(0, kRows, {kExamples, 4}), torch::randint(0, 3, {kExamples})};
}

MakeOptimizer sgd() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.5));
  };
}
MakeOptimizer adagrad_of_rows() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adagrad>(parameters, torch::optim::AdagradOptions(0.1));
  };
}

TEST(ShardedEmbedding, LooksUpWhatLibTorchDoes) {
  const auto ids = torch::tensor({3, 1, 3, 22, 0, 7}, torch::kLong);
  for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
    ShardedEmbedding embedding(table_options(mode));
    embedding->make_table();
    const auto table = initial_table(mode);
    if (mode == EmbeddingMode::kNone) {
      EXPECT_TRUE(embedding(ids.view({2, 3})).equal(torch::embedding(table, ids.view({2, 3}))));
      continue;
    }
    const auto rows = torch::embedding(table, ids.view({2, 3}));
    const auto expected = mode == EmbeddingMode::kSum ? rows.sum(1) : rows.mean(1);
    EXPECT_LT((embedding(ids.view({2, 3})) - expected).abs().max().item<double>(), 1e-15);
    // Bags of 0, 4, 0 and 2.
    const auto uneven = embedding(ids, torch::tensor({0, 0, 4, 4}, torch::kLong));
    EXPECT_TRUE(uneven[0].eq(0).all().item<bool>());
    EXPECT_TRUE(uneven[2].eq(0).all().item<bool>());
    const auto last = torch::embedding(table, ids.narrow(0, 4, 2)).sum(0);
    EXPECT_LT((uneven[3] * (mode == EmbeddingMode::kMean ? 2 : 1) - last).abs().max().item<double>(), 1e-15);
    EXPECT_EQ(embedding(torch::empty({0, 3}, torch::kLong)).sizes(), (std::vector<int64_t>{0, kColumns}));
  }
}

TEST(ShardedEmbedding, LooksUpInATableThatWasConvertedToAnotherDtypeToo) {
  const auto ids = torch::tensor({{3, 1, 3}, {22, 0, 7}}, torch::kLong);
  for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
    ShardedEmbedding exact(table_options(mode));
    ShardedEmbedding rounded(table_options(mode));
    exact->make_table();
    rounded->make_table();
    rounded->to(torch::kBFloat16);
    for (auto embedding : {exact, rounded}) embedding(ids).sum().backward();
    EXPECT_LT((rounded(ids) - exact(ids)).abs().max().item<double>(), 0.02);
    EXPECT_TRUE(rounded->weight.grad()
                    .to_dense()
                    .to(torch::kDouble)
                    .allclose(exact->weight.grad().to_dense(), /*rtol=*/0.01));
  }
}

TEST(ShardedEmbedding, HasAGradientOfEachRowOnce) {
  ShardedEmbedding embedding(table_options(EmbeddingMode::kNone));
  embedding->make_table();
  embedding(torch::tensor({3, 1, 3, 22, 3}, torch::kLong)).sum().backward();
  // Not indices(): LibTorch forgets that a gradient is coalesced where it accumulates it.
  const auto gradient = embedding->weight.grad();
  EXPECT_TRUE(gradient._indices().equal(torch::tensor({{1, 3, 22}}, torch::kLong)));
  EXPECT_TRUE(gradient._values().select(1, 0).equal(torch::tensor({1, 3, 1}, torch::kDouble)));
}

TEST(ShardedEmbedding, HasTheSameGradientHoweverTheRowsOfItsResultsLie) {
  const auto ids = torch::tensor({3, 1, 3, 22, 3}, torch::kLong);
  const auto offsets = torch::tensor({0, 0, 2}, torch::kLong);  // bags of 0, 2 and 3
  const auto bags = torch::tensor({1, 1, 2, 2, 2}, torch::kLong);
  const auto lengths = torch::tensor({2, 2, 3, 3, 3}, torch::kDouble).unsqueeze(1);
  const auto wide = torch::rand({5, 4 * kColumns}, torch::kDouble);
  for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
    const int64_t num_results = mode == EmbeddingMode::kNone ? 5 : 3;
    for (const auto& all :
         {wide.narrow(1, kColumns, kColumns).contiguous(), wide.narrow(1, kColumns, kColumns),
          wide.narrow(1, 1, kColumns), wide.t().contiguous().t().narrow(1, kColumns, kColumns),
          wide.narrow(1, 2, 1).expand({5, kColumns})}) {
      const auto of_results = all.narrow(0, 0, num_results);
      ShardedEmbedding embedding(table_options(mode));
      embedding->make_table();
      auto of_ids = of_results;
      if (mode == EmbeddingMode::kNone) {
        embedding(ids).backward(of_results);
      } else {
        embedding(ids, offsets).backward(of_results);
        of_ids = of_results.index_select(0, bags);
        if (mode == EmbeddingMode::kMean) of_ids = of_ids / lengths;
      }
      const auto expected = torch::zeros({kRows, kColumns}, torch::kDouble).index_add(0, ids, of_ids);
      EXPECT_LT((embedding->weight.grad().to_dense() - expected).abs().max().item<double>(), 1e-15);
    }
  }
}

TEST(ShardedEmbedding, LooksUpInATableWhoseRowsLieApart) {
  ShardedEmbedding embedding(table_options(EmbeddingMode::kNone));
  embedding->make_table();
  const auto ids = torch::tensor({3, 1, 22}, torch::kLong);
  const auto expected = embedding(ids).detach().clone();
  {
    const torch::NoGradGuard no_grad;
    embedding->weight.set_data(embedding->weight.t().contiguous().t());
  }
  ASSERT_FALSE(embedding->weight.is_contiguous());
  EXPECT_TRUE(embedding(ids).equal(expected));
}

TEST(ShardedEmbedding, RefusesABackwardThatWouldBeWrong) {
  ShardedEmbedding embedding(table_options(EmbeddingMode::kNone));
  embedding->make_table();
  auto ids = torch::tensor({3, 1, 22}, torch::kLong);
  const auto result = embedding(ids).sum();
  ids.fill_(5);
  EXPECT_THAT(message_of<InvalidArgument>([&] { result.backward(); }),
              HasSubstr("they were changed in place"));
  const auto other = embedding(ids).square().sum();
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { other.backward({}, /*retain_graph=*/true, /*create_graph=*/true); }),
      HasSubstr("without create_graph"));
}

TEST(ShardedEmbedding, ATableOfOneRowIsConvertedBeforeItIsMade) {
  auto options = table_options(EmbeddingMode::kNone);
  options.num_embeddings = 1;
  ShardedEmbedding embedding(options);
  embedding->to(torch::kFloat);
  embedding->make_table();
  EXPECT_EQ(embedding->weight.scalar_type(), torch::kFloat);
}

TEST(ShardedEmbedding, GivesCopiesOfItsRows) {
  ShardedEmbedding embedding(table_options(EmbeddingMode::kSum));
  EXPECT_THAT(message_of<InvalidArgument>([&] { embedding->read_rows(); }), HasSubstr("but it has none yet"));
  embedding->make_table();
  const auto table = initial_table(EmbeddingMode::kSum);
  auto rows = embedding->read_rows();
  EXPECT_TRUE(rows.equal(table));
  rows.zero_();
  EXPECT_TRUE(embedding->read_rows(4, 9).equal(table.slice(0, 4, 9)));
  EXPECT_FALSE(rows.requires_grad());
  for (const auto& [begin, end] : {std::pair(-1, 3), {4, 3}, {0, 24}}) {
    EXPECT_THAT(
        message_of<InvalidArgument>([&, begin = begin, end = end] { embedding->read_rows(begin, end); }),
        HasSubstr("expected rows from 0 to 23, but got " + std::to_string(begin)));
  }
}

TEST(ShardedEmbedding, HashesIdsAsMurmurHash3Ends) {
  ShardedEmbedding embedding(ShardedEmbeddingOptions{
      .num_embeddings = 1000, .embedding_dim = 1, .hash_ids = true, .initial_values = ConstantValues{0}});
  const auto ids = torch::tensor({int64_t{0}, int64_t{1}, int64_t{2}, int64_t{-1}, int64_t{123456789},
                                  std::numeric_limits<int64_t>::min()},
                                 torch::kLong);
  // Computed by Python's integers.
  EXPECT_TRUE(embedding->rows_of(ids).equal(torch::tensor({0, 796, 447, 289, 430, 899}, torch::kLong)));
  // As even as 100,000 numbers drawn for 1,000 rows: chi-squared of 999 degrees of freedom, +- 6 sigma.
  const auto rows = embedding->rows_of(torch::arange(100'000));
  const auto counts = torch::bincount(rows, {}, 1000).to(torch::kDouble);
  const auto chi_squared = ((counts - 100).square() / 100).sum().item<double>();
  EXPECT_NEAR(chi_squared, 999, 6 * std::sqrt(2 * 999.0));
}

TEST(ShardedEmbedding, HasNoMemoryForItsTableUntilAStrategyGivesIt) {
  constexpr int64_t kManyRows = int64_t{1} << 40;  // 128 TiB
  ShardedEmbedding embedding(ShardedEmbeddingOptions{.num_embeddings = kManyRows, .embedding_dim = 32});
  EXPECT_EQ(embedding->weight.sizes(), (std::vector<int64_t>{kManyRows, 32}));
  EXPECT_EQ(embedding->weight.storage().nbytes(), sizeof(float));
  embedding->to(torch::kCPU, torch::kDouble);
  EXPECT_EQ(embedding->weight.scalar_type(), torch::kDouble);
  EXPECT_EQ(embedding->weight.storage().nbytes(), sizeof(double));
  EXPECT_THAT(message_of<InvalidArgument>([&] { embedding(torch::zeros({1}, torch::kLong)); }),
              HasSubstr("make the module in strategy.scope()"));
}

TEST(ShardedEmbedding, RefusesOtherIds) {
  ShardedEmbedding embedding(table_options(EmbeddingMode::kSum));
  embedding->make_table();
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                embedding(torch::tensor({{0, 23}}, torch::kLong));
              }),
              HasSubstr("ids from 0 to 22, but got 23"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                embedding(torch::tensor({{-1, 2}}, torch::kLong));
              }),
              HasSubstr("but got -1"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                embedding(torch::zeros({1, 2}));
              }),
              HasSubstr("ids of int64"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { embedding(torch::zeros({3}, torch::kLong)); }),
              HasSubstr("bags of ids [B, L]"));
  const auto ids = torch::zeros({3}, torch::kLong);
  for (const auto& offsets : {std::vector<int64_t>{1, 2}, {0, 2, 1}, {0, 4}}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { embedding(ids, torch::tensor(offsets, torch::kLong)); }),
                HasSubstr("offsets that ascend from 0 to 3"));
  }
  ShardedEmbedding plain(table_options(EmbeddingMode::kNone));
  EXPECT_THAT(message_of<InvalidArgument>([&] { plain(ids, ids); }), HasSubstr("expected no offsets"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { ShardedEmbedding(ShardedEmbeddingOptions{.num_embeddings = 3}); }),
      HasSubstr("but got 3 by 0"));
}

TEST(ShardedEmbedding, TrainsAsADenseTableUnderReplicasThatStepTogether) {
  for (const auto& make : {sgd(), adagrad_of_rows()}) {
    const auto alone = trained_alone<DenseNet>(seeded<DenseNet>, bags(), make);
    for (const int replicas : {1, 3}) {
      const auto trained = trained_on_replicas<TableNet>({replicas, "hierarchical_copy"}, seeded<TableNet>,
                                                         bags(), make, plain_step<TableNet>);
      EXPECT_LT(largest_difference(trained, alone), 1e-12);
    }
  }
}

enum class Reads { kAhead, kWhenLookedUp };

struct TableTraining {
  TableTraining(ParameterServerStrategy& strategy, const MakeOptimizer& make, Reads reads)
      : model(strategy.scope([](ReplicaContext&) { return seeded<TableNet>(); })),
        optimizer(
            strategy.scope([&](ReplicaContext& replica) { return make(model[replica]->parameters()); })) {
    const auto data = bags();
    const auto batches =
        strategy.step_batches(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
    StepOptions<Example> options;
    if (reads == Reads::kAhead)
      options.look_up = [this](const Example& shard, TableLookups& lookups) {
        model.primary()->list_lookups(shard.data, lookups);
      };
    strategy.define_step(
        "train", batches,
        [&strategy, this](const StepSlot&, PerReplica<Example>& batch) {
          strategy.run(plain_step<TableNet>, model, optimizer, batch);
        },
        options);
  }
  Mirrored<TableNet> model;
  Mirrored<OptimizerPointer> optimizer;
};

/// A job that trains tables, made for one thread at a time: the process's random state is all of theirs.
class TableJob {
 public:
  TableJob(const ParameterServerJob::Options& options, MakeOptimizer make, Reads reads)
      : job(options), make_(std::move(make)), reads_(reads), training(prepare(job.chief())) {
    job.start_workers([this](ParameterServerStrategy& strategy) { return prepare(strategy); });
  }
  void train(int64_t begin, int64_t end) {
    job.chief().run_steps("train", begin, end, [](int64_t, const std::vector<ClosureValues>&) {});
  }

 private:
  std::shared_ptr<TableTraining> prepare(ParameterServerStrategy& strategy) {
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    return std::make_shared<TableTraining>(strategy, make_, reads_);
  }

  std::mutex one_at_a_time_;

 public:
  ParameterServerJob job;

 private:
  MakeOptimizer make_;
  Reads reads_;

 public:
  std::shared_ptr<TableTraining> training;
};

/// Workers, replicas of each, shards, and when rows are read.
class ServedTableTest : public ::testing::TestWithParam<std::tuple<int, int, int, Reads>> {};

TEST_P(ServedTableTest, TrainsAsADenseTable) {
  const auto [workers, replicas, shards, reads] = GetParam();
  for (const auto& make : {sgd(), adagrad_of_rows()}) {
    const auto alone = trained_alone<DenseNet>(seeded<DenseNet>, bags(), make);
    TableJob tables(
        {.num_workers = workers,
         .replicas_per_worker = replicas,
         .parameters = {.partitioner = std::make_shared<FixedShardsPartitioner>(shards), .max_staleness = 0}},
        make, reads);
    auto& job = tables.job;
    const auto& training = tables.training;
    tables.train(0, 12);
    // What the servers have, read as an evaluation does.
    std::vector<torch::Tensor> served;
    const auto rows = torch::arange(kRows);
    job.chief().run(
        [&](ReplicaContext& replica, TableNet& model) {
          if (replica.local_replica_id() != 0) return;
          const torch::NoGradGuard no_grad;
          served = {model->tables[0](rows), model->tables[1](rows.unsqueeze(1)),
                    model->tables[2](rows.unsqueeze(1)), model->head->weight.clone(),
                    model->head->bias.clone()};
        },
        training->model);
    EXPECT_LT(largest_difference(served, alone), 1e-12);
    for (size_t i = 0; i < 3; ++i) {
      const auto& table = training->model.primary()->tables[i];
      EXPECT_TRUE(table->read_rows().equal(served[i]));
      EXPECT_TRUE(table->read_rows(4, 9).equal(served[i].slice(0, 4, 9)));
      EXPECT_EQ(table->read_rows(7, 7).sizes(), (std::vector<int64_t>{0, kColumns}));
    }
    EXPECT_EQ(training->model.primary()->tables[0]->weight.storage().nbytes(), sizeof(double));
    job.end();
  }
}

INSTANTIATE_TEST_SUITE_P(ShardedEmbedding, ServedTableTest,
                         ::testing::Values(std::tuple(1, 1, 1, Reads::kAhead),
                                           std::tuple(2, 1, 5, Reads::kAhead),
                                           std::tuple(2, 1, 5, Reads::kWhenLookedUp),
                                           std::tuple(2, 2, 3, Reads::kAhead),
                                           std::tuple(2, 2, 3, Reads::kWhenLookedUp)));

TEST(ShardedEmbedding, AStepReadsAllRowsByOneMessageToEachServer) {
  // Three tables, and two parameters of the layer behind them.
  const auto requests_of_steps = [](Reads reads) {
    TableJob tables(
        {.num_servers = 2,
         .num_workers = 1,
         .parameters = {.partitioner = std::make_shared<FixedShardsPartitioner>(2), .looks_ahead = false}},
        sgd(), reads);
    tables.train(0, 1);
    const auto requests = [&] {
      return std::vector<uint64_t>{tables.job.num_requests(0), tables.job.num_requests(1)};
    };
    const auto before = requests();
    tables.train(1, 11);
    const auto after = requests();
    tables.job.end();
    return std::vector<uint64_t>{after[0] - before[0], after[1] - before[1]};
  };
  EXPECT_THAT(requests_of_steps(Reads::kAhead), Each(20U));             // a pull and a push
  EXPECT_THAT(requests_of_steps(Reads::kWhenLookedUp), Each(Gt(40U)));  // and one for each table
}

TEST(ShardedEmbedding, ServersTrainTheRowsThatItsFilterTakes) {
  // Ids 0 to 3 come in every batch, the others in one each.
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
        served = table(torch::arange(kRows).unsqueeze(1));
      },
      training->table);
  job.end();
  // Each time that a row comes in a batch its gradient is 1, and the rate 0.5.
  auto expected = initial_table(EmbeddingMode::kSum);
  for (int64_t row = 0; row < kRows; ++row) {
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

TEST(ShardedEmbedding, HasNoFilterWithoutServers) {
  auto options = table_options(EmbeddingMode::kSum);
  options.row_filter.steps_to_live = 5;
  DefaultStrategy strategy;
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { strategy.scope([&](ReplicaContext&) { return ShardedEmbedding(options); }); }),
              HasSubstr("expected no row_filter"));
}

TEST(TableLookups, AreOfTheSameIdsAlone) {
  ShardedEmbedding table(table_options(EmbeddingMode::kSum));
  ShardedEmbedding other(table_options(EmbeddingMode::kSum));
  auto ids = torch::tensor({{7, 3}, {7, 0}}, torch::kLong);
  TableLookups lookups;
  lookups.add(table, ids);
  const auto& lookup = lookups.all().at(0);
  EXPECT_TRUE(lookup.rows.rows.equal(torch::tensor({0, 3, 7}, torch::kLong)));
  EXPECT_TRUE(lookup.rows.places.equal(torch::tensor({{2, 1}, {2, 0}}, torch::kLong)));
  EXPECT_TRUE(lookup.is_of(table->weight, ids));
  EXPECT_TRUE(lookup.is_of(table->weight, ids.flatten()));
  EXPECT_FALSE(lookup.is_of(other->weight, ids));
  EXPECT_FALSE(lookup.is_of(table->weight, ids.clone()));
  EXPECT_FALSE(lookup.is_of(table->weight, ids[0]));
  EXPECT_FALSE(lookup.is_of(table->weight, ids.t()));
  ids[0][0] = 5;
  EXPECT_FALSE(lookup.is_of(table->weight, ids));
}

}  // namespace
}  // namespace lockstep
