#include "lockstep/runtime/gradient_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "lockstep/tests/runtime/replica_group.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr BucketOptions kOneParameterABucket{.first_bucket_bytes = 1, .bucket_bytes = 1};
constexpr BucketOptions kOneBucket{};
constexpr double kUnused = std::numeric_limits<double>::quiet_NaN();

/// Equal parameters and a reducer on each of several replicas.
class Reducers {
 public:
  Reducers(int ranks, const std::function<std::vector<at::Tensor>()>& make_parameters,
           const BucketOptions& buckets)
      : group_(ranks),
        parameters_(static_cast<size_t>(ranks)),
        holds_(static_cast<size_t>(ranks)),
        reducers_(static_cast<size_t>(ranks)) {
    for (auto& parameters : parameters_) parameters = make_parameters();
    group_.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      reducers_[self] = std::make_unique<GradientReducer>(
          parameters_[self], group_.backend(rank),
          GradientReducer::Options{buckets, [this, self] { return holds_[self] != 0; },
                                   [](size_t index) { return "'parameter_" + std::to_string(index) + "'"; }});
    });
  }

  /// As a strategy does: prepare(), then the function, and reset() after a failure.
  std::vector<std::exception_ptr> errors_of(const std::function<void(int)>& function) {
    auto errors = group_.errors_of([&](int rank) {
      reducer(rank).prepare();
      function(rank);
    });
    if (std::any_of(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; })) {
      for (auto& reducer : reducers_) reducer->reset();
    }
    return errors;
  }
  void run(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }

  /// The first error that is no consequence of another replica's.
  std::string cause_of(const std::function<void(int)>& function) {
    for (const auto& error : errors_of(function)) {
      if (message_of<CollectiveAborted>(error) == "another replica failed") continue;
      if (error) return message_of<InvalidArgument>(error);
    }
    return "no error";
  }

  int ranks() const { return group_.size(); }
  std::vector<at::Tensor>& parameters(int rank) { return parameters_[static_cast<size_t>(rank)]; }
  GradientReducer& reducer(int rank) { return *reducers_[static_cast<size_t>(rank)]; }
  void hold(int rank, bool held) { holds_[static_cast<size_t>(rank)] = held ? 1 : 0; }
  void zero(int rank) {
    for (auto& parameter : parameters(rank)) parameter.mutable_grad().reset();
  }
  at::Tensor gradient(int rank, size_t index) { return parameters(rank)[index].grad(); }
  /// Gives each parameter a gradient of one value; kUnused leaves it out.
  void backward(int rank, const std::vector<double>& values) {
    at::Tensor loss = torch::zeros({});
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(values[i])) loss = loss + (parameters(rank)[i] * values[i]).sum();
    }
    loss.backward();
  }
  /// Every replica holds this value, bit for bit.
  void expect_gradients(const std::vector<double>& values) {
    for (int rank = 0; rank < ranks(); ++rank) {
      for (size_t i = 0; i < values.size(); ++i) {
        SCOPED_TRACE("replica " + std::to_string(rank) + ", parameter " + std::to_string(i));
        if (std::isnan(values[i])) {
          EXPECT_FALSE(gradient(rank, i).defined());
        } else {
          ASSERT_TRUE(gradient(rank, i).defined());
          EXPECT_TRUE(gradient(rank, i).eq(values[i]).all().item<bool>()) << gradient(rank, i);
        }
      }
    }
  }

 private:
  ReplicaGroup group_;
  std::vector<std::vector<at::Tensor>> parameters_;
  std::vector<char> holds_;  // each entry is used by its own replica's thread only
  std::vector<std::unique_ptr<GradientReducer>> reducers_;
};

std::vector<at::Tensor> three_parameters() {
  return {torch::ones({2}).requires_grad_(), torch::ones({3, 2}).requires_grad_(),
          torch::ones({}).requires_grad_()};
}

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
        // The last replica has an empty shard and skips backward altogether, but where it is alone.
        if (rank < ranks - 1 || ranks == 1) reducers.backward(rank, {rank == 0 ? 5 : kUnused, kUnused, 1});
        reducers.reducer(rank).finish();
        reducers.reducer(rank).mark_applied();
      });
      reducers.expect_gradients({5, kUnused, std::max(1.0, ranks - 1.0)});
    }
    // What was unused comes into use, and the other way round.
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

TEST(GradientReducer, ASecondArrivalInALaunchedBucketNamesTheParameterAndAccumulate) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.backward(rank, {1, 2, 3});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("'parameter_"), HasSubstr("accumulate()")));
  // What may be half summed is gone, and the next step is right.
  reducers.expect_gradients({kUnused, kUnused, kUnused});
  reducers.run([&](int rank) {
    reducers.backward(rank, {1, 2, 3});
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({2, 4, 6});
}

TEST(GradientReducer, ASecondArrivalInABucketThatWaitsIsAddedUp) {
  Reducers reducers(2, three_parameters, kOneBucket);
  reducers.run([&](int rank) {
    reducers.backward(rank, {1, kUnused, 3});
    reducers.backward(rank, {1, kUnused, 2});
    reducers.reducer(rank).finish();
  });
  reducers.expect_gradients({4, kUnused, 10});
}

TEST(GradientReducer, ANewBackwardAfterZeroingForgetsTheOneBefore) {
  for (const auto& buckets : {kOneParameterABucket, kOneBucket, BucketOptions{.first_bucket_bytes = 1}}) {
    // First and second backward of both replicas; between them everything is zeroed and nothing applied.
    const std::vector<std::array<std::vector<double>, 4>> cases{
        {{{1, 2, 3}, {1, 2, 3}, {10, 20, 30}, {10, 20, 30}}},
        // Other parameters than the first time: none may come back.
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

TEST(GradientReducer, RefusesGradientsThatNobodyHasZeroedByNameInEveryStep) {
  for (int steps_before : {1, 2, 3}) {  // the second step has another layout than the first
    Reducers reducers(2, three_parameters, kOneBucket);
    const auto step = [&](int rank) {
      // A chain from parameter 0 on, against the first layout's order.
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
      reducers.backward(rank, {5, 5, 5});  // another optimizer's, on its way to that one's parameters
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

TEST(GradientReducer, RefusesCreateGraph) {
  Reducers reducers(2, three_parameters, kOneParameterABucket);
  const auto text = reducers.cause_of([&](int rank) {
    reducers.parameters(rank)[0].sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  });
  EXPECT_THAT(text, HasSubstr("create_graph"));
}

TEST(GradientReducer, HasNothingToDoForParametersThatRequireNoGradient) {
  Reducers reducers(
      2, [] { return std::vector<at::Tensor>{torch::ones({2})}; }, kOneBucket);
  reducers.run([&](int rank) { reducers.reducer(rank).finish(); });
  EXPECT_EQ(reducers.reducer(0).num_buckets(), 0U);
  reducers.expect_gradients({kUnused});
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

TEST(GradientReducer, SumsSparseGradientsBesideDenseOnes) {
  const auto make = [] {
    return std::vector<at::Tensor>{torch::ones({10, 3}).requires_grad_(), torch::ones({3}).requires_grad_()};
  };
  Reducers reducers(3, make, kOneParameterABucket);
  const auto step = [&](int rank) {
    auto& p = reducers.parameters(rank);
    // Replica 2 looks nothing up.
    if (rank < 2) {
      const auto rows = torch::tensor(rank == 0 ? std::vector<int64_t>{1, 4, 1} : std::vector<int64_t>{4, 9});
      (torch::embedding(p[0], rows, -1, false, /*sparse=*/true).sum() * (rank + 1) + p[1].sum()).backward();
    }
    reducers.reducer(rank).finish();
    reducers.reducer(rank).mark_applied();
  };
  auto expected = torch::zeros({10, 3});
  expected[1] = 2;
  expected[4] = 3;
  expected[9] = 2;
  for (int i = 0; i < 2; ++i) {
    reducers.run([&](int rank) {
      reducers.zero(rank);
      step(rank);
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(reducers.gradient(rank, 0).is_sparse());
      EXPECT_TRUE(torch::equal(reducers.gradient(rank, 0).to_dense(), expected));
      EXPECT_TRUE(reducers.gradient(rank, 1).eq(2).all().item<bool>());
    }
  }
  // Not zeroed: refused for the sparse one, too.
  const auto text = reducers.cause_of([&](int rank) {
    reducers.parameters(rank)[1].mutable_grad().reset();
    step(rank);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("'parameter_0'"), HasSubstr("zero_grad()")));
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
