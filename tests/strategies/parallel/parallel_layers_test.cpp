// Layers that are cut along an axis: what they compute, and bad input. Oracle: LibTorch's whole layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <limits>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StrategyOptions tensor_options(int size) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = {{"tensor", size}}};
}

/// Runs `function(replica, module)` on ranks along "tensor", each with a module that `make` returns.
template <typename Make, typename Fn>
void on_ranks(int size, const Make& make, const Fn& function) {
  MirroredStrategy strategy(cpu_devices(size), tensor_options(size));
  auto modules = strategy.scope([&](ReplicaContext& replica) { return make(replica.axis("tensor")); });
  strategy.run([&](ReplicaContext& replica, auto& module) { function(replica.axis("tensor"), module); },
               modules);
}

torch::Tensor leaf(const torch::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& expected) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(torch::allclose(actual, expected, 1e-12, 1e-12)) << actual << expected;
}

class ParallelLayers : public testing::TestWithParam<int> {};

TEST_P(ParallelLayers, AGatheringColumnLayerIsALinearLayer) {
  auto whole = wave_linear(6, 8, 1);
  const auto values = wave_values({2, 3, 6}, 2);
  const auto weights = wave_values({2, 3, 8}, 3);
  const auto x = leaf(values);
  const auto y = whole->forward(x);
  (y * weights).sum().backward();
  on_ranks(
      GetParam(),
      [](const ReplicaAxis& axis) {
        return ColumnParallelLinear(axis, wave_linear(6, 8, 1),
                                    ColumnParallelLinearOptions{.gather_output = true});
      },
      [&](const ReplicaAxis& axis, ColumnParallelLinear& layer) {
        const auto own = leaf(values);
        const auto out = layer(own);
        expect_close(out, y);
        (out * weights).sum().backward();
        expect_close(own.grad(), x.grad());
        const int64_t rows = 8 / axis.size();
        expect_close(layer->weight.grad(), whole->weight.grad().narrow(0, axis.index() * rows, rows));
        expect_close(layer->bias.grad(), whole->bias.grad().narrow(0, axis.index() * rows, rows));
      });
}

TEST_P(ParallelLayers, ARowLayerOfWholeInputIsALinearLayer) {
  auto whole = wave_linear(8, 6, 1);
  const auto values = wave_values({3, 8}, 2);
  const auto weights = wave_values({3, 6}, 3);
  const auto x = leaf(values);
  const auto y = whole->forward(x);
  (y * weights).sum().backward();
  on_ranks(
      GetParam(),
      [](const ReplicaAxis& axis) {
        return RowParallelLinear(axis, wave_linear(8, 6, 1),
                                 RowParallelLinearOptions{.input_is_parallel = false});
      },
      [&](const ReplicaAxis& axis, RowParallelLinear& layer) {
        const auto own = leaf(values);
        const auto out = layer(own);
        expect_close(out, y);
        (out * weights).sum().backward();
        expect_close(own.grad(), x.grad());
        const int64_t columns = 8 / axis.size();
        expect_close(layer->weight.grad(), whole->weight.grad().narrow(1, axis.index() * columns, columns));
        expect_close(layer->bias.grad(), whole->bias.grad());
      });
}

TEST_P(ParallelLayers, AnEmbeddingOfPartsIsAnEmbedding) {
  const auto ids = torch::tensor({{0, 11, 5}, {5, 7, 3}});
  const auto weights = wave_values({2, 3, kFeatures}, 3);
  const auto make_whole = [] {
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(kVocabulary, kFeatures).padding_idx(-7));
    embedding->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    embedding->weight.copy_(wave_values({kVocabulary, kFeatures}, 4));
    return embedding;
  };
  auto whole = make_whole();
  const auto y = whole->forward(ids);
  (y * weights).sum().backward();
  on_ranks(
      GetParam(), [&](const ReplicaAxis& axis) { return VocabParallelEmbedding(axis, make_whole()); },
      [&](const ReplicaAxis& axis, VocabParallelEmbedding& layer) {
        const auto out = layer(ids);
        EXPECT_TRUE(torch::equal(out, y));
        (out * weights).sum().backward();
        const int64_t rows = kVocabulary / axis.size();
        EXPECT_TRUE(
            torch::equal(layer->weight.grad(), whole->weight.grad().narrow(0, axis.index() * rows, rows)));
      });
}

TEST_P(ParallelLayers, CrossEntropyOfPartsIsThatOfWholeLogits) {
  // Large logits, whose exponentials would overflow.
  const auto values = wave_values({2, 5, kVocabulary}, 2) * 1500;
  const auto targets = (torch::arange(10).reshape({2, 5}) * 5 + 1) % kVocabulary;
  targets[1][2] = -3;
  for (const double smoothing : {0.0, 0.2}) {
    for (const auto reduction : {at::Reduction::None, at::Reduction::Sum, at::Reduction::Mean}) {
      SCOPED_TRACE(testing::Message() << "smoothing " << smoothing << ", reduction " << reduction);
      const auto logits = leaf(values);
      const auto losses =
          at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), {}, reduction, -3, smoothing);
      const auto expected = reduction == at::Reduction::None ? losses.reshape({2, 5}) : losses;
      const auto weights = wave_values(expected.sizes(), 5) + 1;
      (expected * weights).sum().backward();
      on_ranks(
          GetParam(),
          [&](const ReplicaAxis& axis) {
            return VocabParallelCrossEntropy(
                axis, VocabParallelCrossEntropyOptions{
                          .reduction = reduction, .ignore_index = -3, .label_smoothing = smoothing});
          },
          [&](const ReplicaAxis& axis, VocabParallelCrossEntropy& layer) {
            const int64_t part = kVocabulary / axis.size();
            const auto own = leaf(values.narrow(-1, axis.index() * part, part));
            const auto out = layer(own, targets);
            expect_close(out, expected);
            (out * weights).sum().backward();
            expect_close(own.grad(), logits.grad().narrow(-1, axis.index() * part, part));
          });
    }
  }
}

TEST_P(ParallelLayers, CrossEntropyOfShortLogitsComputesInFloat) {
  const auto values = wave_values({6, kVocabulary}, 2).to(torch::kBFloat16) * 20;
  const auto targets = torch::arange(6) * 2;
  const auto expected = at::cross_entropy_loss(values.to(torch::kFloat), targets, {}, at::Reduction::None);
  on_ranks(
      GetParam(), [&](const ReplicaAxis& axis) { return VocabParallelCrossEntropy(axis); },
      [&](const ReplicaAxis& axis, VocabParallelCrossEntropy& layer) {
        const int64_t part = kVocabulary / axis.size();
        const auto own = leaf(values.narrow(-1, axis.index() * part, part));
        const auto out = layer(own, targets);
        EXPECT_EQ(out.scalar_type(), torch::kFloat);
        EXPECT_TRUE(torch::allclose(out, expected, 1e-6, 1e-6));
        out.sum().backward();
        EXPECT_EQ(own.grad().scalar_type(), torch::kBFloat16);
      });
}

TEST_P(ParallelLayers, EmptyBatchesPass) {
  on_ranks(
      GetParam(), [](const ReplicaAxis& axis) { return ParallelNet(axis); },
      [](const ReplicaAxis&, ParallelNet& net) {
        const auto none = torch::empty({0, 5}, torch::kLong);
        const auto losses = net->forward(none, none);
        EXPECT_EQ(losses.numel(), 0);
        losses.sum().backward();
      });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParallelLayers, testing::Values(1, 2, 4));

TEST(ParallelLayersTest, SecondDerivativesPassThroughCutLayers) {
  on_ranks(
      2,
      [](const ReplicaAxis& axis) {
        return ParallelMlp(axis, ParallelMlpOptions{.features = 4, .hidden_features = 6});
      },
      [](const ReplicaAxis&, ParallelMlp& mlp) {
        const auto x = leaf(wave_values({3, 4}, 1).to(torch::kFloat));
        const auto y = mlp(x).square().sum();
        const auto first = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
        const auto second = torch::autograd::grad({first.square().sum()}, {x})[0];
        // The derivative along `first`, by differences.
        constexpr double kStep = 1e-2;
        const auto gradient_at = [&](double shift) {
          const auto at = leaf(x + shift * first);
          return torch::autograd::grad({mlp(at).square().sum()}, {at})[0];
        };
        const auto difference = (gradient_at(kStep) - gradient_at(-kStep)) / kStep;
        EXPECT_TRUE(torch::allclose(second, difference, 2e-2, 1e-3)) << second << difference;
      });
}

TEST(ParallelLayersTest, RecomputationDrawsTheRanksOwnNumbersAgain) {
  MirroredStrategy strategy(cpu_devices(2), tensor_options(2));
  auto mlps = strategy.scope([](ReplicaContext& replica) {
    return ParallelMlp(
        replica.axis("tensor"),
        ParallelMlpOptions{.features = 4, .hidden_features = 8, .hidden_dropout = 0.5, .dropout = 0.5});
  });
  strategy.run(
      [](ReplicaContext& replica, ParallelMlp& mlp) {
        const auto values = wave_values({3, 4}, 1).to(torch::kFloat);
        const auto gradients = [&](bool recomputes) {
          mlp->zero_grad();
          replica.generator().set_current_seed(5);
          replica.rank_generator().set_current_seed(6 + static_cast<uint64_t>(replica.rank()));
          const auto x = leaf(values);
          const auto y =
              recomputes ? recompute([&](const torch::Tensor& input) { return mlp(input); }, x) : mlp(x);
          y.square().sum().backward();
          return std::vector<torch::Tensor>{y.detach(), x.grad(), mlp->up->weight.grad().clone(),
                                            mlp->down->weight.grad().clone(), torch::rand({2})};
        };
        const auto expected = gradients(false);
        const auto actual = gradients(true);
        EXPECT_GT(expected[2].abs().sum().item<double>(), 0);
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(actual[i], expected[i])) << i;
      },
      mlps);
}

template <typename Make>
std::string error_of_making(int size, const Make& make) {
  MirroredStrategy strategy(cpu_devices(size), tensor_options(size));
  return message_of<InvalidArgument>(
      [&] { strategy.scope([&](ReplicaContext& replica) { return make(replica.axis("tensor")); }); });
}

TEST(ParallelLayersTest, SizesThatDoNotDivideAreRefusedWithSizesThatWouldDo) {
  EXPECT_THAT(error_of_making(4,
                              [](const ReplicaAxis& axis) {
                                return ColumnParallelLinear(
                                    axis, ColumnParallelLinearOptions{.in_features = 3, .out_features = 10});
                              }),
              AllOf(HasSubstr("[ColumnParallelLinear]"), HasSubstr("out_features"), HasSubstr("axis tensor"),
                    HasSubstr("got 10"), HasSubstr("8 or 12 would do")));
  EXPECT_THAT(
      error_of_making(4,
                      [](const ReplicaAxis& axis) {
                        return RowParallelLinear(
                            axis, RowParallelLinearOptions{.in_features = 3, .out_features = 10});
                      }),
      AllOf(HasSubstr("[RowParallelLinear]"), HasSubstr("in_features"), HasSubstr("got 3: 4 would do")));
  EXPECT_THAT(
      error_of_making(2,
                      [](const ReplicaAxis& axis) {
                        return VocabParallelEmbedding(
                            axis, VocabParallelEmbeddingOptions{.num_embeddings = 51, .embedding_dim = 2});
                      }),
      AllOf(HasSubstr("[VocabParallelEmbedding]"), HasSubstr("num_embeddings"), HasSubstr("50 or 52")));
  EXPECT_THAT(error_of_making(2,
                              [](const ReplicaAxis& axis) {
                                return ParallelMlp(axis,
                                                   ParallelMlpOptions{.features = 4, .hidden_features = 7});
                              }),
              AllOf(HasSubstr("[ParallelMlp]"), HasSubstr("hidden_features"), HasSubstr("6 or 8")));
}

TEST(ParallelLayersTest, BadOptionsAreRefused) {
  EXPECT_THAT(error_of_making(2,
                              [](const ReplicaAxis& axis) {
                                return RowParallelLinear(
                                    axis, RowParallelLinearOptions{.in_features = 4, .out_features = 0});
                              }),
              HasSubstr("1 or more"));
  EXPECT_THAT(error_of_making(2,
                              [](const ReplicaAxis& axis) {
                                return VocabParallelEmbedding(
                                    axis, VocabParallelEmbeddingOptions{
                                              .num_embeddings = 4, .embedding_dim = 2, .padding_idx = 4});
                              }),
              HasSubstr("padding_idx"));
  EXPECT_THAT(error_of_making(2,
                              [](const ReplicaAxis& axis) {
                                return VocabParallelEmbedding(
                                    axis,
                                    torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).max_norm(1)));
                              }),
              HasSubstr("max_norm"));
  EXPECT_THAT(error_of_making(2,
                              [](const ReplicaAxis& axis) {
                                return VocabParallelCrossEntropy(
                                    axis, VocabParallelCrossEntropyOptions{.label_smoothing = 1.5});
                              }),
              HasSubstr("label_smoothing"));
  EXPECT_THAT(error_of_making(2,
                              [](const ReplicaAxis& axis) {
                                return ParallelMlp(
                                    axis, ParallelMlpOptions{
                                              .features = 4, .hidden_features = 8, .hidden_dropout = -1});
                              }),
              HasSubstr("dropout"));
}

TEST(ParallelLayersTest, AnAxisThatCutsTheBatchIsRefused) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto message = message_of<InvalidArgument>([&] {
    strategy.scope([](ReplicaContext& replica) {
      return ParallelMlp(replica.axis("data"), ParallelMlpOptions{.features = 4, .hidden_features = 8});
    });
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("such as tensor"), HasSubstr("got data"), HasSubstr("cuts the batch")));
}

TEST(ParallelLayersTest, WrongInputsAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), tensor_options(2));
  auto nets = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
  const auto error_of = [&](const auto& call) {
    return message_of<InvalidArgument>(
        [&] { strategy.run([&](ReplicaContext&, ParallelNet& net) { call(net); }, nets); });
  };
  EXPECT_THAT(error_of([](ParallelNet& net) {
                net->up(torch::zeros({2, 7}, torch::kDouble));
              }),
              AllOf(HasSubstr("[ColumnParallelLinear]"), HasSubstr("8]")));
  EXPECT_THAT(error_of([](ParallelNet& net) {
                net->down(torch::zeros({2, 16}, torch::kDouble));
              }),
              AllOf(HasSubstr("[RowParallelLinear]"), HasSubstr("[..., 8]")));
  EXPECT_THAT(error_of([](ParallelNet& net) {
                net->embedding(torch::tensor({3, 12}));
              }),
              AllOf(HasSubstr("[VocabParallelEmbedding]"), HasSubstr("0 to 11"), HasSubstr("got 12")));
  EXPECT_THAT(error_of([](ParallelNet& net) { net->embedding(torch::tensor({0.5})); }), HasSubstr("int64"));
  EXPECT_THAT(error_of([](ParallelNet& net) {
                net->loss(torch::zeros({2, 6}, torch::kDouble), torch::tensor({0, -1}));
              }),
              AllOf(HasSubstr("[VocabParallelCrossEntropy]"), HasSubstr("got -1")));
  EXPECT_THAT(error_of([](ParallelNet& net) {
                net->loss(torch::zeros({2, 6}, torch::kDouble), torch::tensor({0, 1, 2}));
              }),
              HasSubstr("[2, 6]"));
}

TEST(ParallelLayersTest, ALayerOutsideOfAStrategyIsRefused) {
  MirroredStrategy strategy(cpu_devices(2), tensor_options(2));
  std::vector<ParallelMlp> mlps;
  auto numbers = strategy.scope([&](ReplicaContext& replica) {
    mlps.emplace_back(replica.axis("tensor"), ParallelMlpOptions{.features = 4, .hidden_features = 8});
    return 0;
  });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                mlps[0](torch::zeros({1, 4}));
              }),
              HasSubstr("strategy.scope()"));
}

TEST(ParallelLayersTest, MarksStayWhenAModuleChangesItsDtype) {
  MirroredStrategy strategy(cpu_devices(2), tensor_options(2));
  auto nets = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
  for (int rank = 0; rank < 2; ++rank) {
    auto& net = nets.local_values()[static_cast<size_t>(rank)];
    net->to(torch::kFloat);
    const auto* cut = sharded_parameter_of(net->down->weight);
    ASSERT_NE(cut, nullptr);
    EXPECT_EQ(cut->dim, 1);
    EXPECT_EQ(cut->offset, 8 * rank);
    EXPECT_EQ(cut->length, 8);
    EXPECT_EQ(cut->sizes, (std::vector<int64_t>{kFeatures, kHidden}));
    EXPECT_EQ(sharded_parameter_of(net->down->bias), nullptr);
  }
}

}  // namespace
}  // namespace lockstep
