// How gradients are laid out in buckets, when buckets are launched, and when the layout changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/tests/support/reducers.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(GradientReducer, LaysOutInReverseOrderFirstAndThenInReplicaZerosOrder) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  EXPECT_EQ(reducers.reducer(0).order(), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 3U);
  std::vector<std::vector<size_t>> arrivals(2);
  for (int step = 0; step < 3; ++step) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      if (step == 0) {
        for (size_t i = 0; i < 3; ++i) {
          reducers.parameters(rank)[i].register_hook([&, rank, i](const at::Tensor& gradient) {
            if (arrivals[static_cast<size_t>(rank)].size() < 3)
              arrivals[static_cast<size_t>(rank)].push_back(i);
            return gradient;
          });
        }
      }
      // A chain in which replica 0 uses parameter 2 first, so that its gradient comes last.
      auto& p = reducers.parameters(rank);
      const std::vector<size_t> uses =
          rank == 0 ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{0, 1, 2};
      at::Tensor x = torch::ones({});
      for (const size_t i : uses) x = x * p[i].sum();
      x.backward();
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
  }
  EXPECT_EQ(arrivals[0], (std::vector<size_t>{1, 0, 2}));
  EXPECT_EQ(reducers.reducer(0).order(), arrivals[0]);
  EXPECT_EQ(reducers.reducer(1).order(), arrivals[0]);
  EXPECT_EQ(reducers.reducer(1).statistics().rebuilds, 2);
}

TEST(GradientReducer, ASmallFirstBucketIsFollowedByFullOnes) {
  const auto make = [] {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 9; ++i) parameters.push_back(torch::ones({10}).requires_grad_());
    return parameters;
  };
  Reducers reducers(2, make, {.first_bucket_bytes = 40, .bucket_bytes = 160});
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 3U);
}

TEST(GradientReducer, LaunchesBucketsBeforeBackwardHasReachedTheFirstLayer) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  reducers.run([&](int rank) {
    auto& p = reducers.parameters(rank);
    auto& reducer = reducers.reducer(rank);
    auto early = p[0].sum() * 2;
    int64_t launched_by_then = -1;
    early.register_hook([&](const at::Tensor& gradient) {
      launched_by_then = reducer.statistics().launched_in_backward;
      return gradient;
    });
    // Backward meets parameter 2, then 1, then `early` and parameter 0.
    ((early * p[1].sum()) * p[2]).backward();
    EXPECT_EQ(launched_by_then, 2);
    EXPECT_EQ(reducer.statistics().launched_in_backward, 3);
    reducer.finish();
    EXPECT_EQ(reducer.statistics().launched_at_end, 0);
  });
}

TEST(GradientReducer, LaysOutAnewWhereRequiresGradOrDtypeHaveChanged) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto step = [&](const std::vector<double>& values) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.backward(rank, values);
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
  };
  step({1, 2, 3});
  for (int rank : {0, 1}) reducers.parameters(rank)[1].set_requires_grad(false);
  step({1, 2, 3});
  reducers.expect_gradients({2, kUnused, 6});
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 2U);
  for (int rank : {0, 1}) reducers.parameters(rank)[1].set_requires_grad(true);
  for (int rank : {0, 1}) {
    auto& parameter = reducers.parameters(rank)[0];
    parameter.mutable_grad().reset();
    parameter.set_data(torch::ones({4}, torch::kDouble));  // as Module::to does
  }
  step({1, 2, 3});
  reducers.expect_gradients({2, 4, 6});
  EXPECT_EQ(reducers.gradient(1, 0).scalar_type(), torch::kDouble);
  EXPECT_EQ(reducers.gradient(1, 0).numel(), 4);
}

TEST(GradientReducer, LaysOutAnewBetweenABackwardNobodyAppliedAndTheNextStep) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  reducers.run([&](int rank) { reducers.backward(rank, {1, kUnused, 3}); });
  for (int rank : {0, 1}) reducers.parameters(rank)[0].set_data(torch::ones({5}));
  reducers.run([&](int rank) {
    reducers.zero(rank);
    reducers.backward(rank, {10, 20, 30});
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({20, 40, 60});
}

/// Parameters of the same shape, so that the sizes of their buckets do not tell them apart.
std::vector<at::Tensor> three_alike() {
  return {torch::ones({2}).requires_grad_(), torch::ones({2}).requires_grad_(),
          torch::ones({2}).requires_grad_()};
}

TEST(GradientReducer, HasTheSameLayoutOnReplicasThatBeginTheNextStepInAnotherRun) {
  Reducers reducers(2, three_alike, kOneBucket);
  const auto begin = [&](int rank, double scale) {
    reducers.zero(rank);
    const auto& p = reducers.parameters(rank);
    const auto last = (p[2] * (3 * scale)).sum();
    ((p[1] * (2 * scale)).sum() + last).backward();
  };
  reducers.run([&](int rank) {
    begin(rank, 1);  // gradients arrive in the order 1, 2, whereas the first layout is 2, 1, 0
    reducers.reducer(rank).finish();
    reducers.reducer(rank).mark_applied();
    if (rank == 0) begin(rank, 10);  // launches nothing, since the bucket is not full
  });
  reducers.run([&](int rank) {
    if (rank == 1) begin(rank, 100);
    reducers.backward(rank, {5, kUnused, kUnused});
    reducers.reducer(rank).finish();
  });
  for (const int rank : {0, 1}) EXPECT_EQ(reducers.reducer(rank).order(), (std::vector<size_t>{1, 2, 0}));
  reducers.expect_gradients({10, 220, 330});
}

TEST(GradientReducer, RefusesAParameterThatBeganToRequireAGradientWithinTheRun) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  for (int rank : {0, 1}) reducers.parameters(rank)[1].set_requires_grad(false);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.parameters(rank)[1].set_requires_grad(true);
    reducers.backward(rank, {1, 2, 3});
    reducers.reducer(rank).finish();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("'parameter_1'"), HasSubstr("requires_grad")));
}

TEST(GradientReducer, HasNothingToDoForParametersThatRequireNoGradient) {
  Reducers reducers(
      2, [] { return std::vector<at::Tensor>{torch::ones({2})}; }, kOneBucket);
  reducers.run([&](int rank) { reducers.reducer(rank).finish(); });
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 0U);
  reducers.expect_gradients({kUnused});
}

TEST(GradientReducer, RemovesItsHooksWithItself) {
  ReplicaGroup group(2);
  auto parameters = three_parameters();
  {
    const GradientReducer reducer(parameters, group.backend(0),
                                  {kOneParameterABucket, [] { return false; }, [](size_t) { return ""; }});
  }
  parameters[2].backward();
  EXPECT_NO_THROW(group.channel().check_complete());  // nothing was launched
  EXPECT_EQ(parameters[2].grad().item<double>(), 1);
}

}  // namespace
}  // namespace lockstep
