// Gradients that are or are not zeroed between backwards and steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/support/reducers.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(GradientReducer, ASecondArrivalInALaunchedBucketNamesTheParameterAndAccumulate) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.backward(rank, {1, 2, 3});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("'parameter_"), HasSubstr("accumulate()")));
  // Gradients that may be half summed are gone, and the next step is right.
  reducers.expect_gradients({kUnused, kUnused, kUnused});
  reducers.run([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({2, 4, 6});
}

// Whether the bucket has left depends on its size, so a second gradient is refused in any case.
TEST(GradientReducer, ASecondArrivalInABucketThatWaitsIsRefusedToo) {
  Reducers reducers(2, three_parameters, kOneBucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.backward(rank, {1, kUnused, 3});
    reducers.backward(rank, {1, kUnused, 2});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("'parameter_"), HasSubstr("accumulate()")));
}

TEST(GradientReducer, ANewBackwardAfterZeroingForgetsTheOneBefore) {
  for (const auto& buckets : {kOneParameterABucket, kOneBucket, BucketOptions{.first_bucket_bytes = 1}}) {
    // First and second backward of both replicas; in between, everything is zeroed and nothing applied.
    const std::vector<std::array<std::vector<double>, 4>> cases{
        {{{1, 2, 3}, {1, 2, 3}, {10, 20, 30}, {10, 20, 30}}},
        // The second backward uses other parameters: none of the first may come back.
        {{{kUnused, 2, 3}, {kUnused, 2, 3}, {10, kUnused, kUnused}, {10, kUnused, kUnused}}},
        {{{kUnused, kUnused, 3}, {kUnused, 2, 3}, {10, 20, kUnused}, {10, kUnused, kUnused}}},
        {{{1, kUnused, kUnused}, {1, 2, 3}, {kUnused, kUnused, 30}, {kUnused, kUnused, kUnused}}}};
    for (const auto& [first_0, first_1, second_0, second_1] : cases) {
      Reducers reducers(2, three_parameters, buckets);
      for (int step = 0; step < 2; ++step) {
        reducers.run([&, &first_0 = first_0, &first_1 = first_1, &second_0 = second_0,
                      &second_1 = second_1](int rank) {
          reducers.zero(rank);
          reducers.backward(rank, rank == 0 ? first_0 : first_1);
          reducers.zero(rank);
          const auto& second = rank == 0 ? second_0 : second_1;
          if (!std::all_of(second.begin(), second.end(), [](double value) { return std::isnan(value); }))
            reducers.backward(rank, second);
          reducers.reducer(rank).finish();
          reducers.reducer(rank).mark_applied();
        });
        std::vector<double> expected;
        for (size_t i = 0; i < 3; ++i) {
          const double a = second_0[i];
          const double b = second_1[i];
          expected.push_back(std::isnan(a) ? b : std::isnan(b) ? a : a + b);
        }
        reducers.expect_gradients(expected);
      }
    }
  }
}

TEST(GradientReducer, ASparseGradientIsForgottenLikeADenseOne) {
  const auto make = [] { return std::vector<at::Tensor>{torch::ones({4, 1}).requires_grad_()}; };
  Reducers reducers(2, make, kOneBucket);
  reducers.run([&](int rank) {
    for (const int64_t row : {0, 3}) {
      reducers.zero(rank);
      torch::embedding(reducers.parameters(rank)[0], torch::full({1}, row, torch::kLong), -1, false, true)
          .sum()
          .backward();
    }
    reducers.reducer(rank).finish();
  });
  for (int rank : {0, 1}) {
    EXPECT_TRUE(
        torch::equal(reducers.gradient(rank, 0).to_dense().flatten(), torch::tensor({0.F, 0.F, 0.F, 2.F})));
  }
}

TEST(GradientReducer, RefusesGradientsThatNobodyHasZeroedByNameInEveryStep) {
  for (int steps_before : {1, 2, 3}) {  // the second step's layout differs from the first's
    Reducers reducers(2, three_parameters, kOneBucket);
    const auto step = [&](int rank) {
      // A chain that starts at parameter 0, against the first layout's order.
      auto& p = reducers.parameters(rank);
      (p[2] * p[0].sum() * p[1].sum()).backward();
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    };
    for (int i = 0; i < steps_before; ++i) {
      reducers.run([&](int rank) {
        reducers.zero(rank);
        step(rank);
      });
    }
    EXPECT_THAT(reducers.cause_of(step), AllOf(HasSubstr("'parameter_"), HasSubstr("zero_grad()")));
  }
}

TEST(GradientReducer, TakesGradientsThatWereZeroedInPlace) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  for (int step = 0; step < 4; ++step) {
    reducers.run([&](int rank) {
      for (auto& parameter : reducers.parameters(rank)) {
        if (parameter.grad().defined()) parameter.mutable_grad().detach_().zero_();
      }
      reducers.backward(rank, {1, 2.0 + step, kUnused});
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    reducers.expect_gradients({2, 4.0 + 2 * step, kUnused});
  }
}

TEST(GradientReducer, AnotherFinishWithoutZeroingOrBackwardAfterTheStepIsRefused) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.reducer(rank).finish();
    reducers.reducer(rank).mark_applied();
    reducers.reducer(rank).finish();
  });
  EXPECT_THAT(text, HasSubstr("zero_grad()"));
}

TEST(GradientReducer, SumsThatAnotherBackwardPassedThroughAreRefusedOnlyWhereTheyAreAskedForAgain) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  for (int step = 0; step < 3; ++step) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.backward(rank, {1, 2, 3});
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
      reducers.backward(rank, {5, 5, 5});  // for another optimizer's parameters, passing through these
    });
  }
  EXPECT_THAT(reducers.cause_of([&](int rank) { reducers.reducer(rank).finish(); }),
              AllOf(HasSubstr("'parameter_"), HasSubstr("zero_grad()")));
}

TEST(GradientReducer, ABackwardOnSumsThatWaitToBeAppliedIsRefused) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.reducer(rank).finish();
    reducers.backward(rank, {1, 2, 3});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("'parameter_"), HasSubstr("zero_grad()")));
}

TEST(GradientReducer, RefusesByNameAGradientThatWasTouchedWhileItWasBeingSummed) {
  const std::vector<std::pair<std::string, std::function<void(at::Tensor&)>>> touches{
      {"'parameter_1' was zeroed", [](at::Tensor& parameter) { parameter.mutable_grad().reset(); }},
      {"'parameter_1' was changed",
       [](at::Tensor& parameter) { parameter.mutable_grad() = torch::ones_like(parameter); }},
      {"the gradient of 'parameter_1' is being summed",
       [](at::Tensor& parameter) { parameter.mutable_grad().mul_(0.5); }},
      // Version counters do not notice what is done through data().
      {"the gradient of 'parameter_1' is being summed",
       [](at::Tensor& parameter) { parameter.mutable_grad().data().mul_(0.5); }},
      {"the gradient of 'parameter_1' is being summed",
       [](at::Tensor& parameter) { parameter.data().add_(parameter.grad(), -0.1); }}};
  for (const auto& [words, touch] : touches) {
    Reducers reducers(2, three_parameters, kOneParameterABucket);
    const auto text = reducers.cause_of([&, &touch = touch](int rank) {
      reducers.backward(rank, {1, 2, 3});
      touch(reducers.parameters(rank)[1]);
      reducers.reducer(rank).finish();
    });
    EXPECT_THAT(text, AllOf(HasSubstr(words), HasSubstr("reduce_gradients")));
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.backward(rank, {1, 2, 3});
      reducers.reducer(rank).finish();
    });
    reducers.expect_gradients({2, 4, 6});
  }
}

// Whether the bucket has left depends on its size, so a gradient cannot be changed in any case.
TEST(GradientReducer, RefusesByNameAGradientThatWasTouchedInABucketThatWaits) {
  // Parameter 1 gets no gradient from backward, so the only bucket waits for finish().
  Reducers reducers(2, three_parameters, kOneBucket);
  for (int step = 0; step < 2; ++step) {
    const auto text = reducers.cause_of([&](int rank) {
      reducers.zero(rank);
      reducers.backward(rank, {1, kUnused, 3});
      reducers.parameters(rank)[0].mutable_grad().mul_(0.5);
    });
    EXPECT_THAT(text, HasSubstr("the gradient of 'parameter_0' is being summed"));
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.backward(rank, {1, kUnused, 3});
      reducers.parameters(rank)[2].mutable_grad() = torch::full({}, 10.0F);  // replaced before it left
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    reducers.expect_gradients({2, kUnused, 20});
  }
}

TEST(GradientReducer, BackwardsThatReachDifferentParametersMakeOneSum) {
  Reducers reducers(2, three_parameters, kOneBucket);
  for (int step = 0; step < 2; ++step) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      reducers.hold(rank, true);
      reducers.backward(rank, {kUnused, 3, kUnused});
      reducers.hold(rank, false);
      reducers.backward(rank, {1, 2, kUnused});
      reducers.backward(rank, {kUnused, kUnused, 7});  // completes the bucket
      reducers.reducer(rank).finish();
      reducers.reducer(rank).mark_applied();
    });
    reducers.expect_gradients({2, 10, 14});
  }
}

TEST(GradientReducer, RefusesToSumAnotherBackwardsGradientsWhereOneWasDroppedOnSomeReplicasOnly) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  std::vector<char> has_sums(2, 0);
  const auto errors = reducers.errors_of([&](int rank) {
    // Replica 0's first backward reaches nothing, so nothing of it is dropped there.
    if (rank == 1) reducers.backward(rank, {1, 1, 1});
    reducers.zero(rank);
    reducers.backward(rank, {2, 2, 2});
    reducers.reducer(rank).finish();
    has_sums[static_cast<size_t>(rank)] = 1;
  });
  EXPECT_EQ(has_sums, std::vector<char>(2, 0));
  EXPECT_THAT(message_of<std::exception>(errors[0]), HasSubstr("dropped by zero_grad()"));
  // Afterwards the replicas sum as before.
  reducers.run([&](int rank) {
    reducers.zero(rank);
    reducers.backward(rank, {2, 2, 2});
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({4, 4, 4});
}

}  // namespace
}  // namespace lockstep
