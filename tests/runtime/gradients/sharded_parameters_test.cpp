// Each rank's part of the parameters and of the optimizer's state, and its memory.
#include "lockstep/runtime/gradients/sharded_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <map>

#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/gradients/state_slice.h"
#include "lockstep/runtime/replicas/elementwise_step.h"
#include "lockstep/tests/runtime/gradients/sharded_training.h"

namespace lockstep {
namespace {

namespace optim = torch::optim;
using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<optim::Optimizer> make_adam(const Parameters& parameters) {
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
}

void train(ShardedTraining& training, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      odd_loss(training.parameters(rank), step, rank).backward();
      training.apply(rank);
    });
  }
}

/// The elements of an Adam's moments.
int64_t state_elements(const optim::Optimizer& optimizer) {
  int64_t elements = 0;
  for (const auto& [key, state] : optimizer.state()) {
    const auto& of_slice = static_cast<const optim::AdamParamState&>(*state);
    elements += of_slice.exp_avg().numel() + of_slice.exp_avg_sq().numel();
  }
  return elements;
}

/// Parameters of which each fills whole cache lines on up to 4 ranks, so that nothing is padded.
Parameters even_parameters() {
  Parameters parameters;
  for (const int64_t rows : {64, 256, 32, 128})
    parameters.push_back(
        torch::randn({rows, 16}, at::detail::createCPUGenerator(1), torch::kDouble).set_requires_grad(true));
  return parameters;
}

constexpr int64_t kEvenElements = (64 + 256 + 32 + 128) * 16;

TEST(ShardedParameters, TheRanksOwnEachElementOnceAndSlicesAreViewsOfTheParameters) {
  ShardedTraining training({1, 4, 1}, odd_parameters, make_adam, kShardedBuckets);
  std::map<std::pair<size_t, int64_t>, int> owners;
  for (int rank = 0; rank < 4; ++rank) {
    const auto& sharded = training.sharded(rank);
    for (size_t i = 0; i < sharded.slices().size(); ++i) {
      const auto& slice = sharded.slices()[i];
      const at::Tensor& parameter = training.parameters(rank)[slice.parameter];
      const at::Tensor& tensor = sharded.tensor(i);
      EXPECT_EQ(tensor.sizes(), (std::vector<int64_t>{slice.length}));
      EXPECT_EQ(tensor.const_data_ptr<double>(), parameter.const_data_ptr<double>() + slice.offset);
      for (int64_t element = 0; element < slice.length; ++element)
        ++owners[{slice.parameter, slice.offset + element}];
    }
  }
  size_t elements = 0;
  for (const auto& parameter : training.parameters(0)) elements += static_cast<size_t>(parameter.numel());
  EXPECT_EQ(owners.size(), elements);
  for (const auto& [element, count] : owners) EXPECT_EQ(count, 1);
}

TEST(ShardedParameters, RanksThatOwnTheSamePartOwnTheSameSlices) {
  ShardedTraining training({1, 2, 2}, odd_parameters, make_adam, kShardedBuckets);
  EXPECT_EQ(training.sharded(0).slices(), training.sharded(2).slices());
  EXPECT_EQ(training.sharded(1).slices(), training.sharded(3).slices());
  EXPECT_NE(training.sharded(0).slices(), training.sharded(1).slices());
}

TEST(ShardedParameters, ParametersKeepTheirIdentityValuesAndStrides) {
  Parameters made;
  const auto make = [&] {
    made = odd_parameters();
    return made;
  };
  ShardedTraining training({1, 2, 1}, make, make_adam, kShardedBuckets);
  const Parameters expected = odd_parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(training.parameters(1)[i].is_same(made[i]));
    EXPECT_TRUE(torch::equal(made[i], expected[i]));
    EXPECT_EQ(made[i].strides(), expected[i].strides());
    EXPECT_TRUE(made[i].requires_grad());
  }
}

TEST(ShardedParameters, AStepCountsAsAWriteForAutograd) {
  ShardedTraining training({1, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  training.run([&](int rank) {
    at::Tensor& parameter = training.parameters(rank)[0];
    const at::Tensor later = (parameter * parameter).sum();  // keeps the parameter for its backward
    odd_loss(training.parameters(rank), 0, rank).backward();
    training.apply(rank);
    EXPECT_THROW(later.backward(), c10::Error);
  });
}

// 8 P / N bytes of float64 Adam's two moments for each of them, gradients of P elements in stage 1 and of
// P / N in stage 2, and parameters of P, in elements of 8 bytes.
TEST(ShardedParameters, MemoryIsThatOfTheFormula) {
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {1, 2}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", ranks " + std::to_string(ranks));
      const BucketOptions buckets{.first_bucket_bytes = 1, .bucket_bytes = 1};
      ShardedTraining training({stage, ranks, 1}, even_parameters, make_adam, buckets);
      train(training, 0, 3);
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardedMemory memory = training.sharded(rank).memory();
        EXPECT_EQ(memory.parameters, 8 * kEvenElements);
        EXPECT_EQ(state_elements(training.optimizer(rank)), 2 * kEvenElements / ranks);
        if (stage == 1) {
          EXPECT_EQ(memory.buckets, 8 * kEvenElements);
          EXPECT_EQ(memory.sums, 0);
        } else {
          EXPECT_EQ(memory.buckets, 0);
          EXPECT_EQ(memory.sums, 8 * kEvenElements / ranks);
          EXPECT_GE(memory.peak_buckets, 8 * 256 * 16);
        }
      }
    }
  }
}

TEST(ShardedParameters, Stage2HasMemoryForTheBucketsInFlightOnly) {
  // A chain of equal parameters: gradients come one after another.
  const auto make = [] {
    Parameters parameters;
    for (int i = 0; i < 12; ++i)
      parameters.push_back((torch::eye(64, torch::kDouble) * 1.1).set_requires_grad(true));
    return parameters;
  };
  const BucketOptions buckets{.first_bucket_bytes = 1, .bucket_bytes = 1};
  ShardedTraining training({2, 2, 1}, make, make_adam, buckets);
  LocalChannel meeting(2, LocalAlgorithm::kOneDevice, std::chrono::minutes(5));
  constexpr int64_t kBucket = 64 * 64 * 8;
  for (int step = 0; step < 4; ++step) {
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      at::Tensor x = torch::ones({1, 64}, torch::kDouble);
      for (const auto& parameter : training.parameters(rank)) {
        x = x.mm(parameter).tanh();
        // No rank gets ahead of the other by more than a bucket.
        x.register_hook([&meeting, rank](const at::Tensor& gradient) {
          all_reduce_(*meeting.backend(rank), ReduceOp::kSum, {torch::zeros({1})});
          return gradient;
        });
      }
      x.sum().backward();
      training.apply(rank);
    });
  }
  for (int rank = 0; rank < 2; ++rank) {
    const ShardedMemory memory = training.sharded(rank).memory();
    EXPECT_EQ(memory.buckets, 0);
    EXPECT_EQ(memory.sums, 12 * kBucket / 2);
    // One is filled while the sum of the one before is made, which ends when both ranks have come to the
    // next.
    EXPECT_GE(memory.peak_buckets, kBucket);
    EXPECT_LE(memory.peak_buckets, 3 * kBucket);
  }
}

TEST(ShardedParameters, Stage2NeedsNoMoreMemoryOnARankWithoutABatch) {
  const BucketOptions buckets{.first_bucket_bytes = 1, .bucket_bytes = 1};
  const auto make = [] {
    Parameters parameters;
    for (int i = 0; i < 12; ++i) parameters.push_back(torch::ones({64, 64}, torch::kDouble).requires_grad_());
    return parameters;
  };
  ShardedTraining training({2, 2, 1}, make, make_adam, buckets);
  constexpr int64_t kBucket = 64 * 64 * 8;
  training.run([&](int rank) {
    if (rank == 0) odd_loss(training.parameters(rank), 0, rank).backward();
    training.apply(rank);
  });
  EXPECT_LE(training.sharded(1).memory().peak_buckets, 3 * kBucket);
}

TEST(ShardedParameters, StateThatAnOptimizerHasAlreadyIsDivided) {
  // Stepped before it is sharded.
  const auto make = [](const Parameters& parameters) {
    auto optimizer = std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      odd_loss(parameters, step, 0).backward();
      optimizer->step();
    }
    optimizer->zero_grad();
    return optimizer;
  };
  ShardedTraining sharded({2, 2, 1}, odd_parameters, make, kShardedBuckets);
  ShardedTraining whole({0, 2, 1}, odd_parameters, make, kShardedBuckets);
  train(sharded, 3, 8);
  train(whole, 3, 8);
  expect_parameters(sharded, whole.parameters(0));
  EXPECT_LT(state_elements(sharded.optimizer(0)), state_elements(whole.optimizer(0)));
}

TEST(ShardedParameters, StateLoadedForWholeParametersIsDividedInTheNextRun) {
  ShardedTraining sharded({1, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  ShardedTraining whole({0, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  train(whole, 0, 4);
  train(sharded, 0, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < whole.parameters(0).size(); ++i) {
      at::Tensor& own = sharded.parameters(rank)[i];
      own.copy_(whole.parameters(rank)[i]);
      sharded.optimizer(rank).state()[own.unsafeGetTensorImpl()] =
          whole.optimizer(rank).state().at(whole.parameters(rank)[i].unsafeGetTensorImpl())->clone();
    }
  }
  train(sharded, 4, 8);
  train(whole, 4, 8);
  expect_parameters(sharded, whole.parameters(0));
}

TEST(ShardedParameters, GivesAndTakesTheStateOfEachSlice) {
  ShardedTraining training({1, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  ShardedTraining resumed({1, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  EXPECT_EQ(training.sharded(0).state(0), nullptr);
  train(training, 0, 4);
  for (int rank = 0; rank < 2; ++rank) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < training.sharded(rank).slices().size(); ++i) {
      const auto* state = training.sharded(rank).state(i);
      ASSERT_NE(state, nullptr);
      EXPECT_EQ(static_cast<const optim::AdamParamState*>(state)->exp_avg().numel(),
                training.sharded(rank).slices()[i].length);
      resumed.sharded(rank).set_state(i,
                                      slice_of_state(*state, training.sharded(rank).tensor(i),
                                                     {.length = training.sharded(rank).slices()[i].length}));
    }
    for (size_t i = 0; i < training.parameters(rank).size(); ++i)
      resumed.parameters(rank)[i].copy_(training.parameters(rank)[i]);
  }
  train(training, 4, 8);
  train(resumed, 4, 8);
  expect_parameters(resumed, training.parameters(0));
  resumed.sharded(0).set_state(0, nullptr);
  EXPECT_EQ(resumed.sharded(0).state(0), nullptr);
}

TEST(ShardedParameters, TheStatesOfAllRanksSlicesAreThatOfAWholeTraining) {
  ShardedTraining sharded({2, 4, 1}, odd_parameters, make_adam, kShardedBuckets);
  ShardedTraining whole({0, 4, 1}, odd_parameters, make_adam, kShardedBuckets);
  train(sharded, 0, 3);
  train(whole, 0, 3);
  for (size_t i = 0; i < whole.parameters(0).size(); ++i) {
    const at::Tensor& parameter = whole.parameters(0)[i];
    if (parameter.numel() == 0) continue;
    const auto& expected = static_cast<const optim::AdamParamState&>(
        *whole.optimizer(0).state().at(parameter.unsafeGetTensorImpl()));
    std::vector<char> is_there(static_cast<size_t>(parameter.numel()), 0);
    for (int rank = 0; rank < 4; ++rank) {
      const auto& own = sharded.sharded(rank);
      for (size_t slice = 0; slice < own.slices().size(); ++slice) {
        const ParameterSlice& place = own.slices()[slice];
        if (place.parameter != i) continue;
        const auto& given = static_cast<const optim::AdamParamState&>(*own.state(slice));
        const auto is_close = [&](const at::Tensor& part, const at::Tensor& all) {
          const DenseLayout layout{parameter.sizes(), parameter.strides()};
          return torch::allclose(part, slice_of_values(all, layout, place.offset, place.length), 1e-12,
                                 1e-12);
        };
        EXPECT_EQ(given.step(), 3);
        EXPECT_TRUE(is_close(given.exp_avg(), expected.exp_avg())) << "parameter " << i;
        EXPECT_TRUE(is_close(given.exp_avg_sq(), expected.exp_avg_sq()));
        for (int64_t element = place.offset; element < place.offset + place.length; ++element)
          ++is_there[static_cast<size_t>(element)];
      }
    }
    for (const char times : is_there) EXPECT_EQ(times, 1);
  }
}

TEST(ShardedParameters, ParametersWithNewMemoryMoveBackWithTheirValues) {
  ShardedTraining training({1, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  ShardedTraining plain({0, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  for (auto* of : {&training, &plain}) {
    train(*of, 0, 2);
    for (int rank = 0; rank < 2; ++rank) {
      for (at::Tensor& parameter : of->parameters(rank)) {
        const torch::NoGradGuard no_grad;
        parameter.set_data(parameter.detach() * 0.5);
      }
    }
    train(*of, 2, 4);
    // Within a run.
    of->run([&](int rank) {
      of->optimizer(rank).zero_grad();
      odd_loss(of->parameters(rank), 4, rank).backward();
      of->parameters(rank)[5].set_data(torch::ones({40, 30}, torch::kDouble));
      of->apply(rank);
    });
    train(*of, 5, 6);
  }
  expect_parameters(training, plain.parameters(0));
  for (size_t i = 0; i < training.sharded(0).slices().size(); ++i)
    EXPECT_TRUE(training.sharded(0).tensor(i).is_alias_of(
        training.parameters(0)[training.sharded(0).slices()[i].parameter]));
}

TEST(ShardedParameters, RefusesAParameterThatChangedItsDtypeOrShapeByName) {
  ShardedTraining training({1, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
  train(training, 0, 1);
  for (const at::Tensor& data : {torch::ones({40, 30}), torch::ones({41, 30}, torch::kDouble)}) {
    for (int rank = 0; rank < 2; ++rank) {
      training.parameters(rank)[5].mutable_grad().reset();
      training.parameters(rank)[5].set_data(data.clone());
    }
    EXPECT_THAT(training.refusal_of([](int) {}), AllOf(HasSubstr("'p5'"), HasSubstr("dtype, device or shape"),
                                                       HasSubstr("new optimizer in scope")));
  }
}

TEST(ShardedParameters, TheOptimizerHasItsWholeParametersBackAfterAStepThatThrows) {
  struct Failing : optim::SGD, ElementwiseStep {
    using SGD::SGD;
    at::Tensor step(LossClosure) override { throw std::runtime_error("planted"); }
  };
  const auto make = [](const Parameters& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<Failing>(parameters, optim::SGDOptions(0.1));
  };
  ShardedTraining training({1, 2, 1}, odd_parameters, make, kShardedBuckets);
  const auto errors = training.errors_of([&](int rank) {
    odd_loss(training.parameters(rank), 0, rank).backward();
    training.apply(rank);
  });
  EXPECT_EQ(message_of<std::runtime_error>(errors[0]), "planted");
  for (int rank = 0; rank < 2; ++rank) EXPECT_NO_THROW(training.group().check_parameters(rank));
}

TEST(ShardedParameters, RefusesParametersThatShareMemoryByName) {
  const auto make = [] {
    auto parameters = odd_parameters();
    parameters.push_back(parameters[0].detach().narrow(0, 3, 2).set_requires_grad(true));
    return parameters;
  };
  try {
    const ShardedTraining training({1, 2, 1}, make, make_adam, kShardedBuckets);
    FAIL() << "expected an error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'p0'"), HasSubstr("'p10'"), HasSubstr("share")));
  }
}

TEST(ShardedParameters, RefusesOtherStages) {
  for (const int stage : {-1, 4}) {
    try {
      const ShardedTraining training({stage, 2, 1}, odd_parameters, make_adam, kShardedBuckets);
      FAIL() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("a stage from 0 to 3"), HasSubstr(std::to_string(stage))));
    }
  }
}

}  // namespace
}  // namespace lockstep
