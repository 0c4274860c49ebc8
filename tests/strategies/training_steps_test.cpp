#include "lockstep/strategies/training_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/parameter_server_job.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStepsPerEpoch = (kExamples + kBatchSize - 1) / kBatchSize;
constexpr int64_t kSteps = kEpochs * kStepsPerEpoch;

/// The same program for every strategy.
struct Program {
  explicit Program(Strategy& strategy, const DistributeOptions& options = {.global_batch_size = kBatchSize})
      : model(strategy.scope([](ReplicaContext&) {
          torch::manual_seed(17);
          return make_tanh_net();
        })),
        optimizer(strategy.scope(
            [&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); })),
        train(strategy, "train", dataset(), options,
              [&strategy, this](const StepSlot& step, PerReplica<Example>& batch) {
                strategy.run(plain_step<TanhNet>, model, optimizer, batch);
                return std::tuple(step.step, batch.batch_sizes()->global);
              }) {}

  static TensorDataset dataset() {
    const auto data = examples_of_three_classes();
    return {data.data, data.target};
  }

  Mirrored<TanhNet> model;
  Mirrored<OptimizerPointer> optimizer;
  TrainingSteps<Example> train;
};

struct Trained {
  std::vector<torch::Tensor> parameters;
  std::vector<int64_t> sizes;  // for each batch
};

/// Runs the whole training, in parts that end at these steps.
Trained train(Strategy& strategy, Program& program, const std::vector<int64_t>& ends) {
  EXPECT_FALSE(strategy.serve());
  EXPECT_EQ(program.train.steps_per_epoch(), kStepsPerEpoch);
  Trained trained;
  int64_t next = 0;
  for (const int64_t end : ends) {
    program.train.run(next, end, [&](int64_t step, const std::vector<ClosureValues>& slots) {
      EXPECT_EQ(step, next++);
      for (const auto& values : slots) EXPECT_EQ(std::get<int64_t>(values.at(0)), step);
      trained.sizes.push_back(std::get<int64_t>(slots.at(0).at(1)));
    });
  }
  strategy.run([](ReplicaContext&, TanhNet&) {}, program.model);  // reads the servers' values
  for (const auto& value : values_of(program.model.primary()->parameters()))
    trained.parameters.push_back(value.cpu());  // the default strategy takes a GPU if there is one
  strategy.end();
  return trained;
}

Trained trained_by_servers(int workers, const std::vector<int64_t>& ends) {
  ParameterServerJob job({.num_workers = workers, .parameters = {.max_staleness = 0}});
  std::mutex one_at_a_time;  // guards the process's random state
  const auto make = [&](ParameterServerStrategy& strategy) {
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    return std::make_shared<Program>(strategy);
  };
  const auto program = make(job.chief());
  job.start_workers(make);
  auto trained = train(job.chief(), *program, ends);
  job.end();
  return trained;
}

TEST(TrainingSteps, TrainTheSameUnderEveryStrategy) {
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), momentum_sgd());
  const auto expect_alone = [&](const Trained& trained) {
    EXPECT_LT(largest_difference(trained.parameters, alone), 1e-12);
    std::vector<int64_t> sizes;
    for (int64_t step = 0; step < kSteps; ++step)
      sizes.push_back(step % kStepsPerEpoch == kStepsPerEpoch - 1 ? kExamples % kBatchSize : kBatchSize);
    EXPECT_EQ(trained.sizes, sizes);
  };
  for (const auto& ends : {std::vector<int64_t>{kSteps}, {1, 1, 7, kSteps}}) {
    DefaultStrategy one;
    Program program(one);
    expect_alone(train(one, program, ends));
    MirroredStrategy two(cpu_devices(2), {.intra_op_threads = 1});
    Program of_two(two);
    expect_alone(train(two, of_two, ends));
    expect_alone(trained_by_servers(2, ends));
  }
}

TEST(TrainingSteps, AStepTakesItsBatchWhateverCameBefore) {
  DefaultStrategy strategy;
  Program program(strategy, {.global_batch_size = kBatchSize, .shuffle_seed = 4});
  std::vector<torch::Tensor> batches;
  TrainingSteps look(
      strategy, "look", Program::dataset(), {.global_batch_size = kBatchSize, .shuffle_seed = 4},
      [&](const StepSlot&, PerReplica<Example>& batch) { return batch.local_values().front().data.clone(); });
  const auto run = [&](int64_t begin, int64_t end) {
    batches.clear();
    look.run(begin, end, [&](int64_t, const std::vector<ClosureValues>& values) {
      batches.push_back(std::get<torch::Tensor>(values.at(0).at(0)));
    });
    return batches;
  };
  const auto all = run(0, 2 * kStepsPerEpoch);
  EXPECT_FALSE(all[0].equal(all[kStepsPerEpoch]));  // each epoch has its own order
  const auto some = run(kStepsPerEpoch, kStepsPerEpoch + 2);
  EXPECT_TRUE(some[0].equal(all[kStepsPerEpoch]));
  EXPECT_TRUE(some[1].equal(all[kStepsPerEpoch + 1]));
  EXPECT_TRUE(run(1, 2)[0].equal(all[1]));
}

TEST(TrainingSteps, RefuseWhatCannotBeMade) {
  DefaultStrategy strategy;
  const auto nothing = [](const StepSlot&, PerReplica<Example>&) {};
  const auto data = examples_of_three_classes();
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                TrainingSteps(strategy, "none",
                              TensorDataset(data.data.narrow(0, 0, 0), data.target.narrow(0, 0, 0)),
                              {.global_batch_size = 5}, nothing);
              }),
              HasSubstr("expected a dataset that gives a batch"));
  TrainingSteps steps(strategy, "some", Program::dataset(), {.global_batch_size = 5}, nothing);
  EXPECT_THAT(message_of<InvalidArgument>([&] { steps.run(-1, 2, {}); }), HasSubstr("but got -1 to 2"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { steps.run(3, 2, {}); }), HasSubstr("but got 3 to 2"));
}

}  // namespace
}  // namespace lockstep
