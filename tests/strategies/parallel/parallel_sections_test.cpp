// Layers of which each rank has its share of several sections, as of queries, keys and values. Oracle:
// LibTorch's whole layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

StrategyOptions section_options(int ranks) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = {{"tensor", ranks}}};
}

bool is_near(const torch::Tensor& actual, const torch::Tensor& expected) {
  return actual.sizes() == expected.sizes() && torch::allclose(actual, expected, 1e-12, 1e-12);
}

class ParallelSections : public testing::TestWithParam<int> {};

TEST_P(ParallelSections, ARankHasItsShareOfEachSectionOfAColumnLayer) {
  const std::vector<int64_t> sections = {8, 4, 4};
  auto whole = wave_linear(6, 16, 1);
  const auto values = wave_values({3, 6}, 2);
  const auto x = values.clone().set_requires_grad(true);
  const auto y = whole->forward(x);
  y.square().sum().backward();
  MirroredStrategy strategy(cpu_devices(GetParam()), section_options(GetParam()));
  auto layers = strategy.scope([&](ReplicaContext& replica) {
    return ColumnParallelLinear(replica.axis("tensor"), wave_linear(6, 16, 1),
                                ColumnParallelLinearOptions{.sections = sections});
  });
  strategy.run(
      [&](ReplicaContext& replica, ColumnParallelLinear& layer) {
        const ReplicaAxis& axis = replica.axis("tensor");
        const auto share_of = [&](const torch::Tensor& tensor, int64_t dim) {
          std::vector<torch::Tensor> shares;
          for (const auto& section : tensor.split_with_sizes(sections, dim))
            shares.push_back(section.chunk(axis.size(), dim)[static_cast<size_t>(axis.index())]);
          return torch::cat(shares, dim);
        };
        const auto own = values.clone().set_requires_grad(true);
        const auto out = layer(own);
        EXPECT_TRUE(is_near(out, share_of(y, 1)));
        out.square().sum().backward();
        EXPECT_TRUE(is_near(own.grad(), x.grad()));
        EXPECT_TRUE(is_near(layer->weight.grad(), share_of(whole->weight.grad(), 0)));
        EXPECT_TRUE(is_near(layer->bias.grad(), share_of(whole->bias.grad(), 0)));
        if (const auto* cut = sharded_parameter_of(layer->weight))
          EXPECT_TRUE(part_of_cut(whole->weight, *cut).equal(layer->weight));
      },
      layers);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParallelSections, testing::Values(1, 2, 4));

TEST(ParallelSectionsTest, SectionsThatTheRanksDoNotDivideAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), section_options(2));
  const auto error_of = [&](const std::vector<int64_t>& sections, bool gathers = false) {
    return message_of<InvalidArgument>([&] {
      strategy.scope([&](ReplicaContext& replica) {
        return ColumnParallelLinear(
            replica.axis("tensor"),
            ColumnParallelLinearOptions{
                .in_features = 4, .out_features = 8, .gather_output = gathers, .sections = sections});
      });
    });
  };
  EXPECT_THAT(error_of({5, 3}), AllOf(HasSubstr("sections of weight"), HasSubstr("4 or 6 would do")));
  EXPECT_THAT(error_of({4, 2}), AllOf(HasSubstr("sections of weight with 8 rows"), HasSubstr("got 6")));
  EXPECT_THAT(error_of({4, 4}, true), HasSubstr("gather_output"));
}

}  // namespace
}  // namespace lockstep
