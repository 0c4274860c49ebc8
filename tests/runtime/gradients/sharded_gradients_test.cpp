// Gradients of sharded sums as users see them, and failed runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "lockstep/runtime/replicas/elementwise_step.h"
#include "lockstep/tests/runtime/gradients/sharded_training.h"

namespace lockstep {
namespace {

namespace optim = torch::optim;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::unique_ptr<optim::Optimizer> plain_sgd(const Parameters& parameters) {
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
}

at::Tensor sum_of_losses(const Parameters& parameters, int step, int ranks) {
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (int rank = 0; rank < ranks; ++rank) loss = loss + odd_loss(parameters, step, rank);
  return loss;
}

TEST(ShardedGradients, Stage1GivesTheWholeSumsToThoseWhoAskForThem) {
  for (const int parts : {1, 2, 4}) {
    ShardedTraining training({1, parts, 1}, odd_parameters, plain_sgd, kShardedBuckets);
    Parameters single = odd_parameters();
    const auto optimizer = plain_sgd(single);
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      sum_of_losses(single, step, parts).backward();
      training.run([&](int rank) {
        training.optimizer(rank).zero_grad();
        odd_loss(training.parameters(rank), step, rank).backward();
        training.reduce(rank);
        training.reduce(rank);  // once is enough
        for (size_t i = 0; i < single.size(); ++i) {
          const at::Tensor& sum = training.parameters(rank)[i].grad();
          EXPECT_TRUE(torch::allclose(sum, single[i].grad(), 1e-12, 1e-12)) << "parameter " << i;
          EXPECT_EQ(sum.strides(), training.parameters(rank)[i].strides());
        }
        training.apply(rank);
      });
      optimizer->step();
      expect_parameters(training, single);
    }
  }
}

TEST(ShardedGradients, AStepUsesWhatTheUserHasMadeOfTheWholeSums) {
  ShardedTraining training({1, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
  Parameters single = odd_parameters();
  const auto optimizer = plain_sgd(single);
  const auto change = [](Parameters& parameters) {
    parameters[0].mutable_grad().mul_(2);                             // in place
    parameters[1].mutable_grad() = torch::ones({7}, torch::kDouble);  // by another tensor
    parameters[4].mutable_grad() =
        parameters[4].grad().contiguous() * 3;  // which has its elements in another order
    parameters[5].mutable_grad().reset();       // not at all
  };
  for (int step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    sum_of_losses(single, step, 2).backward();
    change(single);
    optimizer->step();
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      odd_loss(training.parameters(rank), step, rank).backward();
      training.reduce(rank);
      change(training.parameters(rank));
      training.apply(rank);
    });
  }
  expect_parameters(training, single);
}

TEST(ShardedGradients, SumsOfOnePartEachCannotBeReadAndTheErrorSaysWhatToDo) {
  ShardedTraining first({1, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
  const auto read = [](ShardedTraining& training, bool asks) {
    return training.refusal_of([&training, asks](int rank) {
      odd_loss(training.parameters(rank), 0, rank).backward();
      if (asks) {
        training.reduce(rank);
      } else {
        training.group().reducer(rank)->finish();
      }
      training.parameters(rank)[5].grad().sum();
    });
  };
  EXPECT_THAT(read(first, false), AllOf(HasSubstr("'p5'"), HasSubstr("sharded"),
                                        HasSubstr("reduce_gradients"), HasSubstr("clip_norm")));
  ShardedTraining second({2, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
  EXPECT_THAT(read(second, true), AllOf(HasSubstr("'p5'"), HasSubstr("stage 2"), HasSubstr("clip_norm"),
                                        HasSubstr("stage 1"), Not(HasSubstr("reduce_gradients"))));
}

TEST(ShardedGradients, GradientsAreUndefinedAfterAStepSoThatTheNextNeedsNoZeroing) {
  for (const int stage : {1, 2}) {
    ShardedTraining training({stage, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
    Parameters single = odd_parameters();
    const auto optimizer = plain_sgd(single);
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      sum_of_losses(single, step, 2).backward();
      optimizer->step();
      training.run([&](int rank) {
        odd_loss(training.parameters(rank), step, rank).backward();
        training.apply(rank);
        for (const auto& parameter : training.parameters(rank)) EXPECT_FALSE(parameter.grad().defined());
      });
    }
    expect_parameters(training, single);
  }
}

TEST(ShardedGradients, ABackwardThatIsDroppedChangesNothing) {
  for (const int stage : {1, 2}) {
    ShardedTraining training({stage, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
    Parameters single = odd_parameters();
    const auto optimizer = plain_sgd(single);
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      sum_of_losses(single, step, 2).backward();
      optimizer->step();
      training.run([&](int rank) {
        odd_loss(training.parameters(rank), 100 + step, rank, {0, 3}).backward();  // a part of the buckets
        training.optimizer(rank).zero_grad();
        odd_loss(training.parameters(rank), step, rank).backward();
        training.apply(rank);
      });
    }
    expect_parameters(training, single);
  }
}

TEST(ShardedGradients, RefusesASecondBackwardOnSumsThatWaitToBeApplied) {
  for (const int stage : {1, 2}) {
    ShardedTraining training({stage, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
    EXPECT_THAT(training.refusal_of([&](int rank) {
      odd_loss(training.parameters(rank), 0, rank).backward();
      training.group().reducer(rank)->finish();
      odd_loss(training.parameters(rank), 1, rank).backward();
    }),
                AllOf(HasSubstr("is sharded"), HasSubstr("zero_grad()")));
  }
}

TEST(ShardedGradients, RefusesSparseGradientsByName) {
  const auto make = [] {
    return Parameters{torch::ones({10, 3}).requires_grad_(), torch::ones({3}).requires_grad_()};
  };
  ShardedTraining training({1, 2, 1}, make, plain_sgd, kShardedBuckets);
  EXPECT_THAT(training.refusal_of([&](int rank) {
    const auto rows = torch::tensor(std::vector<int64_t>{1, 4});
    torch::embedding(training.parameters(rank)[0], rows, -1, false, /*sparse=*/true).sum().backward();
    training.apply(rank);
  }),
              AllOf(HasSubstr("'p0'"), HasSubstr("sparse")));
}

TEST(ShardedGradients, ManySumsInBackwardLeaveBeforeItEnds) {
  ShardedTraining training({1, 2, 1}, odd_parameters, plain_sgd,
                           {.first_bucket_bytes = 1, .bucket_bytes = 1});
  training.run([&](int rank) {
    odd_loss(training.parameters(rank), 0, rank).backward();
    const auto& reducer = *training.group().reducer(rank);
    EXPECT_EQ(reducer.statistics().launched_in_backward, static_cast<int64_t>(reducer.num_buckets()));
    training.apply(rank);
  });
}

TEST(ShardedGradients, KeepsItsOrderWhateverTheGradientsArrivalsAre) {
  ShardedTraining training({1, 2, 1}, odd_parameters, plain_sgd, kShardedBuckets);
  const auto order = training.group().reducer(0)->order();
  for (int step = 0; step < 3; ++step) {
    training.run([&](int rank) {
      odd_loss(training.parameters(rank), 0, rank, {9}).backward();
      training.apply(rank);
    });
  }
  training.group().reducer(0)->set_agreed_order({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(training.group().reducer(0)->order(), order);
  EXPECT_TRUE(training.group().reducer(0)->agreed_order().empty());
}

TEST(ShardedGradients, ARunThatFailsBeforeTheStepLeavesTheStateGood) {
  for (const int stage : {1, 2}) {
    ShardedTraining training({stage, 2, 2}, odd_parameters, plain_sgd, kShardedBuckets);
    Parameters single = odd_parameters();
    const auto optimizer = plain_sgd(single);
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      sum_of_losses(single, step, 4).backward();
      optimizer->step();
      const auto errors = training.errors_of([&](int rank) {
        odd_loss(training.parameters(rank), 50, rank, {0}).backward();
        if (rank == step) throw std::runtime_error("planted");
        training.apply(rank);
      });
      EXPECT_EQ(message_of<std::runtime_error>(errors[static_cast<size_t>(step)]), "planted");
      EXPECT_TRUE(training.group().is_consistent());
      training.run([&](int rank) {
        training.optimizer(rank).zero_grad();
        odd_loss(training.parameters(rank), step, rank).backward();
        training.apply(rank);
      });
    }
    expect_parameters(training, single);
  }
}

TEST(ShardedGradients, AStepThatOnlySomeRanksMakeIsNoGoodStateForAnyOfThem) {
  struct Failing : optim::SGD, ElementwiseStep {
    using SGD::SGD;
    at::Tensor step(LossClosure closure) override {
      if (fails) throw std::runtime_error("planted");
      return SGD::step(std::move(closure));
    }
    bool fails = false;
  };
  std::vector<Failing*> made;
  const auto make = [&](const Parameters& parameters) -> std::unique_ptr<optim::Optimizer> {
    auto optimizer = std::make_unique<Failing>(parameters, optim::SGDOptions(0.1));
    made.push_back(optimizer.get());
    return optimizer;
  };
  ShardedTraining training({1, 2, 1}, odd_parameters, make, kShardedBuckets);
  const auto step = [&](int rank) {
    odd_loss(training.parameters(rank), 0, rank).backward();
    training.apply(rank);
  };
  training.run(step);
  made[1]->fails = true;
  const auto errors = training.errors_of(step);
  EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "planted");
  EXPECT_FALSE(training.group().is_consistent());
  for (const size_t rank : {0, 1}) EXPECT_TRUE(training.group().was_cut_off(rank));
  EXPECT_THAT(training.group().describe_steps(), HasSubstr("1, 1 finished steps"));
  EXPECT_THAT(training.group().describe_steps(), HasSubstr("sharded"));
}

}  // namespace
}  // namespace lockstep
