// Sums over the replicas that finish() gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "lockstep/tests/support/reducers.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class GradientReducerOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradientReducerOf, testing::Values(1, 2, 3, 4));

TEST_P(GradientReducerOf, GivesTheSumInRankOrderForEveryShapeAndDtypeInEveryStep) {
  const auto make = [] {
    return std::vector<at::Tensor>{
        torch::zeros({30, 20}).requires_grad_(),
        torch::zeros({7}, torch::kDouble).requires_grad_(),
        torch::zeros({}).requires_grad_(),
        torch::zeros({0, 4}).requires_grad_(),
        torch::zeros({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(),
        torch::zeros({200, 300}).requires_grad_(),
        torch::zeros({9, 9}, torch::kDouble).requires_grad_(),
        torch::zeros({6, 4}).t().requires_grad_()};
  };
  const auto value_of = [](int step, int rank, size_t index, const at::Tensor& like) {
    auto generator = at::detail::createCPUGenerator(1000 * step + 100 * rank + index);
    return torch::randn(like.sizes(), generator, torch::kDouble).to(like.scalar_type());
  };
  for (const auto& buckets : {kOneParameterABucket, BucketOptions{1000, 5000}, kOneBucket}) {
    Reducers reducers(GetParam(), make, buckets);
    for (int step = 0; step < 3; ++step) {
      reducers.run([&](int rank) {
        reducers.zero(rank);
        at::Tensor loss = torch::zeros({}, torch::kDouble);
        const auto& parameters = reducers.parameters(rank);
        for (size_t i = 0; i < parameters.size(); ++i)
          loss = loss + (parameters[i] * value_of(step, rank, i, parameters[i])).sum();
        loss.backward();
        reducers.reducer(rank).finish();
        reducers.reducer(rank).mark_applied();
      });
      for (size_t i = 0; i < reducers.parameters(0).size(); ++i) {
        const auto& parameter = reducers.parameters(0)[i];
        at::Tensor expected = value_of(step, 0, i, parameter);
        for (int rank = 1; rank < GetParam(); ++rank)
          expected = expected + value_of(step, rank, i, parameter);
        for (int rank = 0; rank < GetParam(); ++rank) {
          EXPECT_TRUE(torch::equal(reducers.gradient(rank, i), expected))
              << "step " << step << " parameter " << i;
          EXPECT_EQ(reducers.gradient(rank, i).strides(), reducers.parameters(rank)[i].strides());
        }
      }
    }
  }
}

TEST_P(GradientReducerOf, UnusedOnAllStaysUndefinedAndUnusedOnSomeCountsAsZeros) {
  const int ranks = GetParam();
  for (const auto& buckets : {kOneParameterABucket, kOneBucket}) {
    Reducers reducers(ranks, three_parameters, buckets);
    for (int step = 0; step < 2; ++step) {
      reducers.run([&](int rank) {
        reducers.zero(rank);
        // The last replica has an empty shard and skips backward, unless it is alone.
        if (rank < ranks - 1 || ranks == 1) reducers.backward(rank, {rank == 0 ? 5 : kUnused, kUnused, 1});
        reducers.reducer(rank).finish();
        reducers.reducer(rank).mark_applied();
      });
      reducers.expect_gradients({5, kUnused, std::max(1.0, ranks - 1.0)});
    }
    // Unused parameters come into use, and used ones fall out of use.
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.backward(rank, {kUnused, 2, kUnused});
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    reducers.expect_gradients({kUnused, 2.0 * ranks, kUnused});
  }
}

TEST_P(GradientReducerOf, HeldBackwardsAddUpLocallyAndLeaveWithTheNextOne) {
  Reducers reducers(GetParam(), three_parameters, kOneParameterABucket);
  for (int step = 0; step < 2; ++step) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.hold(rank, true);
      reducers.backward(rank, {1, 2, kUnused});
      reducers.backward(rank, {1, 2, kUnused});
      EXPECT_TRUE(reducers.gradient(rank, 0).eq(2).all().item<bool>());
      reducers.hold(rank, false);
      // The last backward does not reach parameter 1.
      reducers.backward(rank, {1.0 * rank, kUnused, 10});
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    const double ranks = GetParam();
    reducers.expect_gradients({2 * ranks + ranks * (ranks - 1) / 2, 4 * ranks, 10 * ranks});
  }
}

TEST(GradientReducer, HeldGradientsAreSummedEvenIfNoBackwardFollows) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  reducers.run([&](int rank) {
    reducers.hold(rank, true);
    reducers.backward(rank, {1, 2, 3.0 + rank});
    EXPECT_EQ(reducers.reducer(rank).statistics().launched_in_backward, 0);
    reducers.hold(rank, false);
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({2, 4, 7});
}

TEST(GradientReducer, SumsOnceHoweverOftenItIsAskedTo) {
  Reducers reducers(3, three_parameters, kOneParameterABucket);
  reducers.run([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.reducer(rank).finish();
    // A hand-written loop changes the sums before the step.
    for (auto& parameter : reducers.parameters(rank)) parameter.mutable_grad().mul_(10);
    reducers.reducer(rank).finish();
    reducers.reducer(rank).mark_applied();
  });
  reducers.expect_gradients({30, 60, 90});
}

TEST(GradientReducer, SumsInALaterRunThanBackward) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  reducers.run([&](int rank) { reducers.backward(rank, {1, 2, 3.0 + rank}); });
  reducers.run([&](int rank) { reducers.reducer(rank).finish(); });
  reducers.expect_gradients({2, 4, 7});
}

struct NoGradientForSecond : torch::autograd::Function<NoGradientForSecond> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& a, const at::Tensor&) {
    return a.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], at::Tensor()};
  }
};

TEST(GradientReducer, TreatsAFunctionThatGivesNoGradientAsNoUse) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  reducers.run([&](int rank) {
    auto& p = reducers.parameters(rank);
    (NoGradientForSecond::apply(p[0], p[1]).sum() + p[2]).backward();
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({2, kUnused, 2});
}

TEST(GradientReducer, RefusesCreateGraph) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.parameters(rank)[0].sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  });
  EXPECT_THAT(text, HasSubstr("create_graph"));
}

}  // namespace
}  // namespace lockstep
