#include "lockstep/strategies/nn/sharded_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/table_net.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

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
    EXPECT_EQ(embedding(torch::empty({0, 3}, torch::kLong)).sizes(),
              (std::vector<int64_t>{0, kTableColumns}));
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
  // Not indices(): when LibTorch accumulates a gradient, it forgets that it is coalesced.
  const auto gradient = embedding->weight.grad();
  EXPECT_TRUE(gradient._indices().equal(torch::tensor({{1, 3, 22}}, torch::kLong)));
  EXPECT_TRUE(gradient._values().select(1, 0).equal(torch::tensor({1, 3, 1}, torch::kDouble)));
}

TEST(ShardedEmbedding, HasTheSameGradientHoweverTheRowsOfItsResultsLie) {
  const auto ids = torch::tensor({3, 1, 3, 22, 3}, torch::kLong);
  const auto offsets = torch::tensor({0, 0, 2}, torch::kLong);  // bags of 0, 2 and 3
  const auto bags = torch::tensor({1, 1, 2, 2, 2}, torch::kLong);
  const auto lengths = torch::tensor({2, 2, 3, 3, 3}, torch::kDouble).unsqueeze(1);
  const auto wide = torch::rand({5, 4 * kTableColumns}, torch::kDouble);
  for (const auto mode : {EmbeddingMode::kNone, EmbeddingMode::kSum, EmbeddingMode::kMean}) {
    const int64_t num_results = mode == EmbeddingMode::kNone ? 5 : 3;
    for (const auto& all : {wide.narrow(1, kTableColumns, kTableColumns).contiguous(),
                            wide.narrow(1, kTableColumns, kTableColumns), wide.narrow(1, 1, kTableColumns),
                            wide.t().contiguous().t().narrow(1, kTableColumns, kTableColumns),
                            wide.narrow(1, 2, 1).expand({5, kTableColumns})}) {
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
      const auto expected =
          torch::zeros({kTableRows, kTableColumns}, torch::kDouble).index_add(0, ids, of_ids);
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
  // Computed with Python's integers.
  EXPECT_TRUE(embedding->rows_of(ids).equal(torch::tensor({0, 796, 447, 289, 430, 899}, torch::kLong)));
  // As even as 100,000 random draws of 1,000 rows: chi-squared of 999 degrees of freedom, +- 6 sigma.
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

struct TablesOfBothKindsImpl : public torch::nn::Module {
  TablesOfBothKindsImpl() {
    torch::nn::EmbeddingOptions sparse(1000, 8);
    torch::nn::EmbeddingBagOptions bags(1000, 8);
    register_module("of_libtorch", torch::nn::Embedding(sparse.sparse(true)));
    register_module("bags_of_libtorch", torch::nn::EmbeddingBag(bags.sparse(true)));
    register_module("own",
                    ShardedEmbedding(ShardedEmbeddingOptions{.num_embeddings = 1000, .embedding_dim = 8}));
    register_module("dense", torch::nn::Embedding(10, 8));
  }
};
TORCH_MODULE(TablesOfBothKinds);

TEST(ShardedEmbedding, HasNoRoomAmongDenseGradientsOfReplicasAsOtherTablesWithSparseOnes) {
  MirroredStrategy strategy({"cpu:0", "cpu:1"}, {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext&) { return TablesOfBothKinds(); });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return std::make_unique<torch::optim::SGD>(model[replica]->parameters(), 0.1);
  });
  int64_t elements = 0;
  for (const auto& bucket : strategy.extended().gradient_buckets(*optimizer[0])) elements += bucket.numel();
  EXPECT_EQ(elements, 2 * 10 * 8);
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
  EXPECT_TRUE(lookup.rows.indices.equal(torch::tensor({{2, 1}, {2, 0}}, torch::kLong)));
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
