// parallelize() cuts some layers, and refuses others. Oracle: LibTorch's whole layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/transformerlayer.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/strategies/parallel/parallelize_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

StrategyOptions cut_on(int ranks) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = {{"tensor", ranks}}};
}

/// Makes `Model` twice, and expects the same results and gradients of the whole one and of the one that the
/// plan cuts on 2 and 4 ranks. Values are those of waves.
template <typename Make, typename Forward>
void expect_same_as_whole(const ParallelPlan& plan, const Make& make, const Forward& forward) {
  const auto made = [&] {
    auto model = made_apart(make);
    model->to(torch::kDouble);
    set_wave_values(*model);
    return model;
  };
  auto whole = made();
  const torch::Tensor expected = forward(whole);
  const auto weights = wave_values(expected.sizes(), 9);
  (expected * weights).sum().backward();
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    MirroredStrategy strategy(cpu_devices(ranks), cut_on(ranks));
    auto model = strategy.scope([&](ReplicaContext& replica) {
      auto own = made();
      parallelize(own, replica.axis("tensor"), plan);
      return own;
    });
    strategy.run(
        [&](ReplicaContext&, auto& own) {
          const torch::Tensor result = forward(own);
          ASSERT_EQ(result.sizes(), expected.sizes());
          EXPECT_LE((result - expected).abs().max().template item<double>(), 1e-12);
          (result * weights).sum().backward();
          const auto parameters = own->named_parameters();
          int cuts = 0;
          for (const auto& item : whole->named_parameters()) {
            const auto& parameter = parameters[item.key()];
            const auto* cut = sharded_parameter_of(parameter);
            cuts += cut != nullptr ? 1 : 0;
            const auto gradient =
                cut != nullptr ? part_of_cut(item.value().grad(), *cut) : item.value().grad();
            ASSERT_TRUE(parameter.grad().defined()) << item.key();
            ASSERT_EQ(parameter.grad().sizes(), gradient.sizes()) << item.key();
            EXPECT_LE((parameter.grad() - gradient).abs().max().template item<double>(), 1e-12) << item.key();
          }
          EXPECT_EQ(cuts > 0, ranks > 1);
        },
        model);
  }
}

struct TwoLayersImpl : torch::nn::Module {
  explicit TwoLayersImpl(bool bias = true) {
    up = register_module("up", torch::nn::Linear(torch::nn::LinearOptions(8, 16).bias(bias)));
    down = register_module("down", torch::nn::Linear(torch::nn::LinearOptions(16, 8).bias(bias)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::tanh(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(TwoLayers);

/// A table whose rows are the weight of the layer that gives logits, too.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embedding =
        register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(12, 8).padding_idx(7)));
    bias = register_parameter("bias", torch::zeros({12}));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    return torch::linear(torch::tanh(embedding(ids)), embedding->weight, bias);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::Tensor bias;
};
TORCH_MODULE(Tied);

const auto ids_with_padding = [](auto& model) {
  return model->forward(torch::tensor({{0, 7, 11}, {3, 4, 7}}, torch::kLong));
};

TEST(Parallelize, CutsLayersByColumnsAndByRows) {
  const ParallelPlan plan{{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}};
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{8}, {3, 8}, {2, 3, 8}, {0, 8}}) {
    SCOPED_TRACE(testing::Message() << sizes);
    const auto forward = [&](TwoLayers& model) { return model->forward(wave_values(sizes, 4)); };
    if (sizes.front() > 0)
      expect_same_as_whole(
          plan, [] { return TwoLayers(); }, forward);
    if (sizes.size() == 3)
      expect_same_as_whole(
          plan, [] { return TwoLayers(/*bias=*/false); }, forward);
  }
}

TEST(Parallelize, GathersOutputsAndTakesWholeInputs) {
  const ParallelPlan plan{{"up", ColwiseParallel{.gather_output = true}},
                          {"down", RowwiseParallel{.input_is_parallel = false}}};
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 8}, {2, 3, 8}}) {
    expect_same_as_whole(
        plan, [] { return TwoLayers(); },
        [&](TwoLayers& model) { return model->forward(wave_values(sizes, 4)); });
  }
  expect_same_as_whole(
      {{"up", ColwiseParallel{.gather_output = true}}}, [] { return TwoLayers(); },
      [](TwoLayers& model) {
        return model->forward(wave_values({3, 8}, 4));
      });
}

TEST(Parallelize, CutsEmbeddingsByRowsAndByFeatures) {
  const auto make = [] {
    torch::nn::Sequential model;
    model->push_back("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(12, 8).padding_idx(-2)));
    return model;
  };
  const auto forward = [](torch::nn::Sequential& model) {
    return model->forward(torch::tensor({{0, 10, 11}, {3, 4, 10}}, torch::kLong));
  };
  expect_same_as_whole({{"table", RowwiseParallel{}}}, make, forward);
  expect_same_as_whole({{"table", ColwiseParallel{.gather_output = true}}}, make, forward);
}

TEST(Parallelize, FeaturesOfAnEmbeddingCanBeTheInputOfALayerCutByRows) {
  const auto make = [] {
    torch::nn::Sequential model;
    model->push_back("table", torch::nn::Embedding(12, 8));
    model->push_back("down", torch::nn::Linear(8, 3));
    return model;
  };
  expect_same_as_whole({{"table", ColwiseParallel{}}, {"down", RowwiseParallel{}}}, make,
                       [](torch::nn::Sequential& model) {
                         return model->forward(torch::tensor({{0, 10, 11}, {3, 4, 10}}, torch::kLong));
                       });
}

TEST(Parallelize, ATableIsTheWeightOfALinearLayerToo) {
  const auto make = [] { return Tied(); };
  expect_same_as_whole({{"embedding", RowwiseParallel{}}}, make, ids_with_padding);
  expect_same_as_whole({{"embedding", ColwiseParallel{.gather_output = true}}}, make, ids_with_padding);
}

/// A linear layer whose weight is another module's.
struct TiedLinearImpl : torch::nn::LinearImpl {
  explicit TiedLinearImpl(const torch::Tensor& shared)
      : torch::nn::LinearImpl(torch::nn::LinearOptions(shared.size(1), shared.size(0))) {
    weight = shared;
    parameters_["weight"] = shared;
  }
};
TORCH_MODULE(TiedLinear);

struct TiedModulesImpl : torch::nn::Module {
  TiedModulesImpl() {
    embedding =
        register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(12, 8).padding_idx(7)));
    head = register_module("head", TiedLinear(embedding->weight));
    again = register_module("again", TiedLinear(embedding->weight));
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto x = torch::tanh(embedding(ids));
    return head(x) + again(x.flatten(0, 1)).view({ids.size(0), ids.size(1), -1});
  }
  torch::nn::Embedding embedding{nullptr};
  TiedLinear head{nullptr}, again{nullptr};
};
TORCH_MODULE(TiedModules);

TEST(Parallelize, ModulesThatShareAWeightAreCutTogether) {
  const auto make = [] { return TiedModules(); };
  expect_same_as_whole({{"embedding", RowwiseParallel{}}}, make, ids_with_padding);
  const ColwiseParallel gathers{.gather_output = true};
  expect_same_as_whole({{"*a*", gathers}}, make, ids_with_padding);
  expect_same_as_whole({{"embedding", RowwiseParallel{}}, {"*a*", gathers}}, make, ids_with_padding);
  expect_same_as_whole({{"*a*", RowwiseParallel{.input_is_parallel = false}}}, make, ids_with_padding);
}

struct FusedImpl : torch::nn::Module {
  FusedImpl() {
    fused = register_module("fused", torch::nn::Linear(8, 24));
    output = register_module("output", torch::nn::Linear(8, 8));
  }
  torch::Tensor forward(const torch::Tensor& x) {  // [batch, tokens, 8], 4 heads
    const auto parts = fused(x).unflatten(-1, {3, -1, 2}).permute({2, 0, 3, 1, 4});
    const auto attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return output(attended.transpose(1, 2).flatten(2));
  }
  torch::nn::Linear fused{nullptr}, output{nullptr};
};
TORCH_MODULE(Fused);

TEST(Parallelize, CutsTheSectionsOfAFusedLayerEachByItself) {
  expect_same_as_whole(
      {{"fused", ColwiseParallel{.sections = {8, 8, 8}}}, {"output", RowwiseParallel{}}},
      [] { return Fused(); },
      [](Fused& model) {
        return model->forward(wave_values({2, 3, 8}, 4));
      });
}

TEST(Parallelize, CutsTheLayersOfTorchsTransformerEncoderLayer) {
  const auto make = [] {
    return torch::nn::TransformerEncoderLayer(
        torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
  };
  expect_same_as_whole({{"linear1", ColwiseParallel{}}, {"linear2", RowwiseParallel{}}}, make,
                       [](torch::nn::TransformerEncoderLayer& model) {
                         return model->forward(wave_values({3, 2, 8}, 4));
                       });
}

TEST(Parallelize, SecondDerivativesAreThoseOfTheWholeModule) {
  const auto penalty = [](TwoLayers& model) {
    const auto x = wave_values({3, 8}, 4).set_requires_grad(true);
    const auto gradient = torch::autograd::grad({model->forward(x).square().sum()}, {x}, {}, true, true)[0];
    return gradient.square().sum();
  };
  expect_same_as_whole(
      {{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}}, [] { return TwoLayers(false); }, penalty);
}

TEST(Parallelize, TheFirstLineThatNamesAModuleDecides) {
  MirroredStrategy strategy(cpu_devices(2), cut_on(2));
  const auto encoders =
      strategy.scope([](ReplicaContext& replica) { return planned_encoder(replica.axis("tensor")); });
  const auto cut_dim = [&](const char* name) {
    const auto* cut = sharded_parameter_of(encoders.primary()->named_parameters()[name]);
    return cut == nullptr ? -1 : *cut->dim;
  };
  EXPECT_EQ(cut_dim("blocks.0.attention.queries.weight"), 0);
  EXPECT_EQ(cut_dim("blocks.1.attention.values.bias"), 0);
  EXPECT_EQ(cut_dim("blocks.1.attention.output.weight"), 1);
  EXPECT_EQ(cut_dim("blocks.1.attention.output.bias"), -1);
  EXPECT_EQ(cut_dim("embedding.weight"), 0);
  EXPECT_EQ(cut_dim("positions.weight"), -1);
  EXPECT_EQ(cut_dim("head.weight"), -1);
  EXPECT_EQ(sharded_parameter_of(encoders.primary()->named_parameters()["blocks.0.up.weight"])->name,
            "blocks.0.up.weight");
}

TEST(Parallelize, PartsBeginWithTheWholeLayersValues) {
  MirroredStrategy strategy(cpu_devices(2), cut_on(2));
  torch::manual_seed(11);
  const auto models = strategy.scope([](ReplicaContext& replica) {
    TwoLayers model;
    parallelize(model, replica.axis("tensor"), {{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}});
    return model;
  });
  torch::manual_seed(11);
  const TwoLayers whole;
  for (int rank = 0; rank < 2; ++rank) {
    const auto& own = models.local_values()[static_cast<size_t>(rank)];
    EXPECT_TRUE(torch::equal(own->up->weight, whole->up->weight.narrow(0, 8 * rank, 8)));
    EXPECT_TRUE(torch::equal(own->up->bias, whole->up->bias.narrow(0, 8 * rank, 8)));
    EXPECT_TRUE(torch::equal(own->down->weight, whole->down->weight.narrow(1, 8 * rank, 8)));
    EXPECT_TRUE(torch::equal(own->down->bias, whole->down->bias));
    EXPECT_TRUE(own->up->weight.requires_grad());
  }
}

/// Returns the error of a plan for a module on three ranks.
template <typename Make>
std::string plan_error(const ParallelPlan& plan, const Make& make, int ranks = 2) {
  MirroredStrategy strategy(cpu_devices(ranks), cut_on(ranks));
  return message_of<InvalidArgument>([&] {
    strategy.scope([&](ReplicaContext& replica) {
      auto model = make();
      const auto before = model->parameters();
      std::vector<std::vector<int64_t>> sizes;
      for (const auto& parameter : before) sizes.push_back(parameter.sizes().vec());
      try {
        parallelize(model, replica.axis("tensor"), plan);
      } catch (const InvalidArgument&) {
        for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].sizes(), sizes[i]);
        throw;
      }
      return model;
    });
  });
}

TEST(ParallelizeErrors, ALineThatNamesNoModuleIsRefusedWithANameThatIsNear) {
  const auto encoder = [] { return wave_encoder(); };
  auto plan = encoder_plan();
  plan.push_back({"blocks.*.upp", ColwiseParallel{}});
  EXPECT_THAT(
      plan_error(plan, encoder),
      AllOf(
          HasSubstr(
              "[parallelize] expected the plan's line {\"blocks.*.upp\", ColwiseParallel} to name a module"),
          HasSubstr("did you mean blocks.*.up?"), HasSubstr("'blocks.*.attention.queries'"),
          Not(HasSubstr("norm"))));
  EXPECT_THAT(plan_error({{"block.1.up", ColwiseParallel{}}}, encoder),
              HasSubstr("did you mean blocks.*.up?"));
  EXPECT_THAT(plan_error({{"something else", ColwiseParallel{}}}, encoder),
              AllOf(HasSubstr("names none: those that can be cut are 'embedding'"), HasSubstr("'head'")));
  EXPECT_THAT(plan_error({{"*", ColwiseParallel{}}}, encoder), HasSubstr("torch::nn::"));
  EXPECT_THAT(plan_error({{"up", ColwiseParallel{}}, {"u*", ColwiseParallel{}}}, [] { return TwoLayers(); }),
              HasSubstr("earlier lines name all of its modules"));
  EXPECT_THAT(plan_error({}, encoder), HasSubstr("expected a plan with a line for each layer to cut"));
}

TEST(ParallelizeErrors, AModuleThatCannotBeCutIsRefusedByName) {
  const auto encoder = [] { return wave_encoder(); };
  EXPECT_THAT(plan_error({{"blocks.*.norm1", ColwiseParallel{}}}, encoder),
              AllOf(HasSubstr("'blocks.0.norm1'"), HasSubstr("LayerNorm"),
                    HasSubstr("expected a torch::nn::Linear or a torch::nn::Embedding")));
  const auto attention = [] {
    torch::nn::Sequential model;
    model->push_back("attend", torch::nn::MultiheadAttention(8, 2));
    return model;
  };
  for (const char* name : {"attend", "attend.out_proj"}) {
    EXPECT_THAT(plan_error({{name, RowwiseParallel{}}}, attention),
                AllOf(HasSubstr(name), HasSubstr("torch::nn::MultiheadAttention"),
                      HasSubstr("linear layers for queries, keys and values (ColwiseParallel)")));
  }
  const auto table_with = [](const torch::nn::EmbeddingOptions& options) {
    return [options] { return torch::nn::Sequential(torch::nn::Embedding(options)); };
  };
  const torch::nn::EmbeddingOptions options(12, 8);
  EXPECT_THAT(
      plan_error({{"0", RowwiseParallel{}}}, table_with(torch::nn::EmbeddingOptions(options).sparse(true))),
      AllOf(HasSubstr("'0'"), HasSubstr("has sparse")));
  EXPECT_THAT(
      plan_error({{"0", RowwiseParallel{}}}, table_with(torch::nn::EmbeddingOptions(options).max_norm(1))),
      HasSubstr("has max_norm"));
  EXPECT_THAT(plan_error({{"0", ColwiseParallel{.sections = {4, 4}}}}, table_with(options)),
              HasSubstr("no sections"));
}

TEST(ParallelizeErrors, SizesThatTheRanksDoNotDivideAreRefusedWithThoseThatWould) {
  const auto layers = [] { return TwoLayers(); };
  EXPECT_THAT(
      plan_error({{"up", ColwiseParallel{}}}, layers, 3),
      AllOf(HasSubstr(
                "[parallelize] expected out_features of 'up' that the 3 ranks along the axis tensor divide"),
            HasSubstr("but got 16: 15 or 18 would do")));
  EXPECT_THAT(plan_error({{"up", RowwiseParallel{}}}, layers, 3), HasSubstr("in_features of 'up'"));
  EXPECT_THAT(plan_error({{"up", ColwiseParallel{.sections = {13, 3}}}}, layers),
              AllOf(HasSubstr("sections of 'up'"), HasSubstr("12 or 14 would do")));
  EXPECT_THAT(plan_error({{"up", ColwiseParallel{.sections = {8, 4}}}}, layers), HasSubstr("got 12"));
  EXPECT_THAT(plan_error({{"up", ColwiseParallel{.gather_output = true, .sections = {8, 8}}}}, layers),
              HasSubstr("no sections with gather_output"));
  EXPECT_THAT(plan_error(
                  {{"embedding", RowwiseParallel{}}}, [] { return wave_encoder(); }, 5),
              AllOf(HasSubstr("num_embeddings of 'embedding'"), HasSubstr("10 or 15")));
}

TEST(ParallelizeErrors, ALayerIsCutOnceAndAnAxisOfTheBatchIsRefused) {
  const auto twice = [] { return TwoLayers(); };
  MirroredStrategy strategy(cpu_devices(2), cut_on(2));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) {
                  auto model = twice();
                  parallelize(model, replica.axis("tensor"), {{"up", ColwiseParallel{}}});
                  parallelize(model, replica.axis("tensor"), {{"up", ColwiseParallel{}}});
                  return model;
                });
              }),
              AllOf(HasSubstr("'up'"), HasSubstr("is cut already")));
  MirroredStrategy data(cpu_devices(2), {.intra_op_threads = 1});
  EXPECT_THAT(
      message_of<InvalidArgument>([&] {
        data.scope([&](ReplicaContext& replica) {
          auto model = twice();
          parallelize(model, replica.axis("data"), {{"up", ColwiseParallel{}}});
          return model;
        });
      }),
      AllOf(HasSubstr("[parallelize] expected an axis along which models are cut"), HasSubstr("data")));
}

TEST(ParallelizeErrors, ModulesThatShareAWeightAreRefusedIfThePlanCutsThemDifferently) {
  const auto make = [] { return TiedModules(); };
  EXPECT_THAT(plan_error({{"embedding", RowwiseParallel{}}, {"*a*", RowwiseParallel{}}}, make),
              AllOf(HasSubstr("'embedding', 'head', 'again' share theirs"),
                    HasSubstr("cuts 'embedding' by {\"embedding\", RowwiseParallel} and 'head' by {\"*a*\", "
                              "RowwiseParallel}")));
  EXPECT_THAT(plan_error({{"head", ColwiseParallel{}}}, make), HasSubstr("and 'again' not at all"));
  EXPECT_THAT(plan_error({{"embedding", RowwiseParallel{}}, {"head", ColwiseParallel{}}}, make),
              HasSubstr("cuts 'head' by {\"head\", ColwiseParallel} and 'again' not at all"));
  EXPECT_THAT(plan_error({{"*a*", ColwiseParallel{.sections = {6, 6}}}}, make),
              HasSubstr("without sections"));
}

/// Returns the error of forward with a plan that misses something.
template <typename Make, typename Forward>
std::string forward_error(const ParallelPlan& plan, const Make& make, const Forward& forward) {
  MirroredStrategy strategy(cpu_devices(2), cut_on(2));
  auto model = strategy.scope([&](ReplicaContext& replica) {
    auto own = make();
    parallelize(own, replica.axis("tensor"), plan);
    return own;
  });
  return message_of<InvalidArgument>(
      [&] { strategy.run([&](ReplicaContext&, auto& own) { forward(own); }, model); });
}

TEST(ParallelizeErrors, ALayerThatThePlanMissesIsNamedByForward) {
  const auto layers = [] { return TwoLayers(); };
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 8}, {2, 3, 8}}) {
    const auto forward = [&](TwoLayers& model) { model->forward(torch::ones(sizes)); };
    EXPECT_THAT(
        forward_error({{"up", ColwiseParallel{}}}, layers, forward),
        AllOf(HasSubstr(
                  "[parallelize] expected an input of [..., 16] for 'down', which no line of the plan names"),
              HasSubstr("one of 2 parts of the features, as 'up' returns them"),
              HasSubstr("the plan misses a line with RowwiseParallel for 'down'")));
    EXPECT_THAT(forward_error({{"down", RowwiseParallel{}}}, layers, forward),
                AllOf(HasSubstr("expected an input of [..., 8] for 'down', which the plan cuts by {\"down\", "
                                "RowwiseParallel}"),
                      HasSubstr("no layer before it is cut"), HasSubstr("input_is_parallel = false")));
    EXPECT_THAT(forward_error({{"up", ColwiseParallel{}}, {"down", ColwiseParallel{}}}, layers, forward),
                AllOf(HasSubstr("for 'down'"), HasSubstr("as 'up' returns them")));
  }
  const auto with_norm = [] {
    return torch::nn::Sequential(torch::nn::Linear(8, 16),
                                 torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
  };
  EXPECT_THAT(forward_error({{"0", ColwiseParallel{}}}, with_norm,
                            [](torch::nn::Sequential& model) {
                              model->forward(torch::ones({3, 8}));
                            }),
              AllOf(HasSubstr("for '1'"), HasSubstr("as '0' returns them"), HasSubstr("gather_output")));
  EXPECT_THAT(forward_error(
                  {{"embedding", RowwiseParallel{}}}, [] { return Tied(); },
                  [](Tied& model) { model->forward(torch::full({1}, 12, torch::kLong)); }),
              AllOf(HasSubstr("parallelized 'embedding'"), HasSubstr("ids from 0 to 11, but got 12")));
}

TEST(ParallelizeErrors, OutsideOfARunAndAfterALayerMovedAloneForwardIsRefused) {
  MirroredStrategy strategy(cpu_devices(2), cut_on(2));
  auto model = strategy.scope([](ReplicaContext& replica) {
    TwoLayers own;
    parallelize(own, replica.axis("tensor"), {{"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}});
    return own;
  });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                model.primary()->forward(torch::ones({3, 8}));
              }),
              HasSubstr("parallelized 'up'"));
  const auto forward = [](ReplicaContext&, TwoLayers& own) {
    own->forward(torch::ones({3, 8}, own->up->weight.options()));
  };
  strategy.run(forward, model);
  strategy.run([](ReplicaContext&, TwoLayers& own) { own->to(torch::kDouble); }, model);
  strategy.run(forward, model);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run([](ReplicaContext&, TwoLayers& own) { own->up->to(torch::kFloat); }, model);
              }),
              AllOf(HasSubstr("expected 'up."), HasSubstr("call to() of that module")));
}

}  // namespace
}  // namespace lockstep
