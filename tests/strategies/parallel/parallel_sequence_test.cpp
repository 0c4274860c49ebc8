// Layers between which each rank has a shard of the sequence. Oracle: LibTorch's layers on the whole
// sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Runs `function(axis, module)` on ranks along "tensor", each with a module that `make` returns.
template <typename Make, typename Fn>
void on_sequence_ranks(int size, const Make& make, const Fn& function) {
  MirroredStrategy strategy(cpu_devices(size),
                            {.intra_op_threads = 1, .seed = 3, .mesh = {{"tensor", size}}});
  auto modules = strategy.scope([&](ReplicaContext& replica) { return make(replica.axis("tensor")); });
  strategy.run([&](ReplicaContext& replica, auto& module) { function(replica.axis("tensor"), module); },
               modules);
}

/// This rank's shard, a leaf.
torch::Tensor shard_of(const ReplicaAxis& axis, const torch::Tensor& whole, int64_t dim) {
  return whole.detach().chunk(axis.size(), dim)[static_cast<size_t>(axis.index())].clone().set_requires_grad(
      true);
}

void expect_shard(const ReplicaAxis& axis, const torch::Tensor& shard, const torch::Tensor& whole,
                  int64_t dim) {
  const auto expected = whole.chunk(axis.size(), dim)[static_cast<size_t>(axis.index())];
  ASSERT_EQ(shard.sizes(), expected.sizes());
  EXPECT_TRUE(torch::allclose(shard, expected, 1e-12, 1e-12)) << shard << expected;
}

class SequenceLayers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SequenceLayers, testing::Values(1, 2, 4));

/// A bare layer with an axis, for its collectives.
struct BareLayer : ParallelModule {
  explicit BareLayer(const ReplicaAxis& axis) : ParallelModule("BareLayer", axis) {}
};

// Each rank uses the gathered values in a part of its own, as a cut layer does, and the parts add up.
TEST_P(SequenceLayers, CollectivesHaveTheGradientsOfTheWholeFunction) {
  for (const int64_t dim : {0, 1, 2}) {
    const auto values = wave_values({4, 8, 4}, 1);
    const auto weights = wave_values({4, 8, 4}, 2);
    const auto part = [&](const torch::Tensor& x, int rank) { return (x * (rank + 1.0)).sin() * weights; };
    const auto x = values.clone().set_requires_grad(true);
    auto sum = part(x, 0);
    for (int rank = 1; rank < GetParam(); ++rank) sum = sum + part(x, rank);
    const auto loss = sum.pow(3).sum();
    const auto gradient = torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    const auto second = torch::autograd::grad({gradient.square().sum()}, {x})[0];
    on_sequence_ranks(
        GetParam(), [](const ReplicaAxis& axis) { return std::make_shared<BareLayer>(axis); },
        [&](const ReplicaAxis& axis, std::shared_ptr<BareLayer>& layer) {
          const auto& parallel = layer->parallel_axis();
          const auto own = shard_of(axis, values, dim);
          const auto whole = parallel.gather_shards(own, dim - 3);
          EXPECT_TRUE(torch::equal(whole, values));
          const auto shard = parallel.sum_to_shards(part(whole, axis.index()), dim);
          expect_shard(axis, shard.detach(), sum.detach(), dim);
          // The ranks compute one loss together: the sum of those of their shards.
          const auto own_gradient =
              torch::autograd::grad({shard.pow(3).sum()}, {own}, {}, std::nullopt, /*create_graph=*/true)[0];
          expect_shard(axis, own_gradient.detach(), gradient.detach(), dim);
          expect_shard(axis, torch::autograd::grad({own_gradient.square().sum()}, {own})[0], second, dim);
        });
  }
}

TEST_P(SequenceLayers, AColumnAndARowLayerMapShardsToShards) {
  auto up = wave_linear(6, 8, 1);
  auto down = wave_linear(8, 6, 2);
  const auto values = wave_values({2, 4, 6}, 3);
  const auto weights = wave_values({2, 4, 6}, 4);
  const auto x = values.clone().set_requires_grad(true);
  const auto y = down(up(x).tanh());
  (y * weights).sum().backward();
  struct Layers : torch::nn::Module {
    explicit Layers(const ReplicaAxis& axis) {
      up = register_module("up", ColumnParallelLinear(axis, wave_linear(6, 8, 1),
                                                      ColumnParallelLinearOptions{.sequence_dim = -2}));
      down = register_module(
          "down", RowParallelLinear(axis, wave_linear(8, 6, 2), RowParallelLinearOptions{.sequence_dim = 1}));
    }
    ColumnParallelLinear up{nullptr};
    RowParallelLinear down{nullptr};
  };
  on_sequence_ranks(
      GetParam(), [](const ReplicaAxis& axis) { return std::make_shared<Layers>(axis); },
      [&](const ReplicaAxis& axis, std::shared_ptr<Layers>& layers) {
        const auto own = shard_of(axis, values, 1);
        const auto shard = layers->down(layers->up(own).tanh());
        expect_shard(axis, shard.detach(), y.detach(), 1);
        (shard * shard_of(axis, weights, 1).detach()).sum().backward();
        expect_shard(axis, own.grad(), x.grad(), 1);
        expect_shard(axis, layers->up->weight.grad(), up->weight.grad(), 0);
        expect_shard(axis, layers->up->bias.grad(), up->bias.grad(), 0);
        expect_shard(axis, layers->down->weight.grad(), down->weight.grad(), 1);
        EXPECT_TRUE(torch::allclose(layers->down->bias.grad(), down->bias.grad(), 1e-12, 1e-12));
      });
}

TEST_P(SequenceLayers, AnEmbeddingReturnsShards) {
  auto whole = wave_embedding(1);
  const auto ids = torch::arange(16).reshape({2, 8}) * 5 % kVocabulary;
  const auto weights = wave_values({2, 8, kFeatures}, 2);
  const auto y = whole(ids);
  (y * weights).sum().backward();
  on_sequence_ranks(
      GetParam(), [](const ReplicaAxis& axis) { return VocabParallelEmbedding(axis, wave_embedding(1), -1); },
      [&](const ReplicaAxis& axis, VocabParallelEmbedding& layer) {
        const auto shard = layer(ids);
        if (axis.size() > 1) {
          expect_shard(axis, shard.detach(), y.detach(), 1);
          (shard * shard_of(axis, weights, 1).detach()).sum().backward();
        } else {
          (shard * weights).sum().backward();
        }
        expect_shard(axis, layer->weight.grad(), whole->weight.grad(), 0);
      });
}

TEST_P(SequenceLayers, ALayerNormHasTheGradientsOfTheWholeSequence) {
  const auto make_whole = [](bool is_affine) {
    torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({6}).elementwise_affine(is_affine).eps(1e-3));
    norm->to(torch::kDouble);
    if (is_affine) {
      const torch::NoGradGuard no_grad;
      norm->weight.copy_(wave_values({6}, 5));
      norm->bias.copy_(wave_values({6}, 6));
    }
    return norm;
  };
  const auto values = wave_values({2, 8, 6}, 3);
  const auto weights = wave_values({2, 8, 6}, 4);
  for (const bool is_affine : {true, false}) {
    auto whole = make_whole(is_affine);
    const auto x = values.clone().set_requires_grad(true);
    const auto y = whole(x);
    (y * weights).sum().backward();
    on_sequence_ranks(
        GetParam(), [&](const ReplicaAxis& axis) { return SequenceLayerNorm(axis, make_whole(is_affine)); },
        [&](const ReplicaAxis& axis, SequenceLayerNorm& norm) {
          const auto own = shard_of(axis, values, 1);
          const auto shard = norm(own);
          expect_shard(axis, shard.detach(), y.detach(), 1);
          (shard * shard_of(axis, weights, 1).detach()).sum().backward();
          expect_shard(axis, own.grad(), x.grad(), 1);
          ASSERT_EQ(norm->parameters().size(), whole->parameters().size());
          if (!is_affine) return;
          EXPECT_TRUE(torch::allclose(norm->weight.grad(), whole->weight.grad(), 1e-12, 1e-12));
          EXPECT_TRUE(torch::allclose(norm->bias.grad(), whole->bias.grad(), 1e-12, 1e-12));
        });
  }
}

TEST(SequenceLayersTest, DropoutOfShardsDiffersBetweenRanksAndIsRecomputed) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .seed = 3, .mesh = {{"tensor", 2}}});
  auto mlps = strategy.scope([](ReplicaContext& replica) {
    return ParallelMlp(
        replica.axis("tensor"),
        ParallelMlpOptions{
            .features = 4, .hidden_features = 8, .hidden_dropout = 0.5, .dropout = 0.5, .sequence_dim = 1});
  });
  const auto outputs = strategy.run(
      [](ReplicaContext& replica, ParallelMlp& mlp) {
        const auto gradients = [&](bool recomputes) {
          mlp->zero_grad();
          replica.generator().set_current_seed(5);
          replica.rank_generator().set_current_seed(6 + static_cast<uint64_t>(replica.rank()));
          const auto x = wave_values({1, 32, 4}, 1).to(torch::kFloat).set_requires_grad(true);
          const auto y =
              recomputes ? recompute([&](const torch::Tensor& input) { return mlp(input); }, x) : mlp(x);
          y.square().sum().backward();
          return std::vector<torch::Tensor>{y.detach(), x.grad(), mlp->up->weight.grad().clone(),
                                            mlp->down->weight.grad().clone()};
        };
        const auto expected = gradients(false);
        const auto actual = gradients(true);
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(actual[i], expected[i])) << i;
        return expected[0];
      },
      mlps);
  std::vector<torch::Tensor> dropped;
  for (const auto& output : outputs.local_values()) {
    dropped.push_back(output == 0);
    EXPECT_NEAR(dropped.back().to(torch::kFloat).mean().item<double>(), 0.5, 0.2);
  }
  EXPECT_FALSE(torch::equal(dropped[0], dropped[1]));
}

TEST(SequenceLayersTest, ActivationsBetweenCutLayersNeedOneRanksShareOfTheMemory) {
  constexpr int64_t kLength = 512;
  constexpr int64_t kWidth = 64;
  constexpr int64_t kBytesOfValues = kLength * kWidth * 4;
  std::vector<int64_t> kept(3);
  for (const int ranks : {1, 2}) {
    std::vector<int64_t> of_ranks(static_cast<size_t>(ranks));
    on_sequence_ranks(
        ranks,
        [](const ReplicaAxis& axis) {
          return SequenceLayerNorm(axis, torch::nn::LayerNormOptions({kWidth}));
        },
        [&](const ReplicaAxis& axis, SequenceLayerNorm& norm) {
          const auto x = torch::ones({1, kLength / axis.size(), kWidth}).set_requires_grad(true);
          const CountedMemory memory;
          const auto y = norm(torch::gelu(norm(x)));
          of_ranks[static_cast<size_t>(axis.index())] = memory.now();
        });
    kept[static_cast<size_t>(ranks)] = of_ranks.back();
  }
  EXPECT_GT(kept[1], 2 * kBytesOfValues);
  EXPECT_NEAR(static_cast<double>(kept[2]) / static_cast<double>(kept[1]), 0.5, 0.05);
}

TEST(SequenceLayersTest, SequencesThatDoNotDivideAndWrongDimensionsAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .seed = 3, .mesh = {{"tensor", 2}}});
  const auto error_of = [&](int64_t dim, const torch::Tensor& input) {
    auto layers = strategy.scope([&](ReplicaContext& replica) {
      return RowParallelLinear(replica.axis("tensor"), wave_linear(8, 6, 1),
                               RowParallelLinearOptions{.sequence_dim = dim});
    });
    return message_of<InvalidArgument>(
        [&] { strategy.run([&](ReplicaContext&, RowParallelLinear& layer) { layer(input); }, layers); });
  };
  const auto input = torch::zeros({2, 5, 4}, torch::kDouble);
  EXPECT_THAT(error_of(1, input), AllOf(HasSubstr("[RowParallelLinear]"), HasSubstr("axis tensor"),
                                        HasSubstr("got 5: 4 or 6 would do")));
  for (const int64_t dim : {2, -1, 3, -4}) {
    EXPECT_THAT(error_of(dim, input),
                AllOf(HasSubstr("sequence_dim"), HasSubstr("got " + std::to_string(dim))));
  }
  auto embeddings = strategy.scope([](ReplicaContext& replica) {
    return VocabParallelEmbedding(replica.axis("tensor"), wave_embedding(1), 2);
  });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run(
                    [](ReplicaContext&, VocabParallelEmbedding& layer) {
                      layer(torch::zeros({2, 4}, torch::kLong));
                    },
                    embeddings);
              }),
              AllOf(HasSubstr("[VocabParallelEmbedding]"), HasSubstr("sequence_dim"), HasSubstr("got 2")));
}

}  // namespace
}  // namespace lockstep
