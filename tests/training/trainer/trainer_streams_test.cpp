// Evaluation and prediction of models that stream batches. Oracle: the same modules on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBatch = 8;
constexpr int64_t kNumExamples = 20 * kBatch + 5;  // three groups of batches, and a smaller last one
constexpr int64_t kNumBatches = 21;

StrategyOptions streamed_options(const std::string& mesh) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = parse_mesh(mesh), .timeout = std::chrono::seconds(30)};
}

torch::nn::Sequential streamed_layers() {
  return torch::nn::Sequential(wave_linear(6, 8, 1), torch::nn::Tanh(), wave_linear(8, 8, 2),
                               torch::nn::Tanh(), wave_linear(8, 3, 3));
}

Pipeline streamed_pipeline(ReplicaContext& replica, const torch::nn::Sequential& layers) {
  PipelineOptions options{.micro_batches = 3};
  if (replica.axis("pipeline").size() > 1) options.cuts = {2};
  return Pipeline(replica.axis("pipeline"), layers, options);
}

torch::optim::SGD streamed_sgd(std::vector<torch::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(0.1));
}

Trainer<Pipeline> streamed_trainer(Strategy& strategy, TrainerOptions<Pipeline> options = {}) {
  options.forward_backward = [](ReplicaContext& replica, Pipeline& model, const Example& batch,
                                const BackwardOptions& how) {
    const auto result =
        model->forward_backward(replica, batch.data, batch.target,
                                {.losses = cross_entropy, .autocast = how.autocast, .scaler = how.scaler});
    return StepOutputs{result.losses, result.outputs, batch.target};
  };
  return Trainer<Pipeline>(
      strategy, [](ReplicaContext& replica) { return streamed_pipeline(replica, streamed_layers()); },
      streamed_sgd, cross_entropy, {{"accuracy", CategoricalAccuracy()}}, options);
}

Example streamed_examples() {
  return {wave_values({kNumExamples, 6}, 4), torch::arange(kNumExamples) % 3};
}

void expect_as_on_one_device(Strategy& strategy) {
  auto whole = streamed_layers();
  const auto examples = streamed_examples();
  const auto expected = whole->forward(examples.data).detach();
  auto trainer = streamed_trainer(strategy);
  EXPECT_TRUE(
      torch::allclose(trainer.predict(examples.data, {.global_batch_size = kBatch}), expected, 0, 1e-12));
  const auto results = trainer.evaluate(examples.data, examples.target, {.global_batch_size = kBatch});
  EXPECT_EQ(results.examples, kNumExamples);
  EXPECT_NEAR(*results.logs.find("loss"), torch::cross_entropy_loss(expected, examples.target).item<double>(),
              1e-12);
  EXPECT_NEAR(*results.logs.find("accuracy"),
              expected.argmax(1).eq(examples.target).to(torch::kDouble).mean().item<double>(), 1e-12);
  // A function of the user's gets one batch after another, with the same results.
  auto other =
      streamed_trainer(strategy, {.compute = [](ReplicaContext&, Pipeline& model, const Example& batch) {
                         const auto outputs = model->forward(batch.data);
                         return StepOutputs{cross_entropy(outputs, batch.target), outputs, batch.target};
                       }});
  const auto others = other.evaluate(examples.data, examples.target, {.global_batch_size = kBatch});
  EXPECT_EQ(*others.logs.find("loss"), *results.logs.find("loss"));
  EXPECT_EQ(*others.logs.find("accuracy"), *results.logs.find("accuracy"));
}

TEST(TrainerStreamsTest, EvaluatesAndPredictsAsOneDevice) {
  for (const char* mesh : {"pipeline=1", "pipeline=2", "data=2,pipeline=2"}) {
    MirroredStrategy strategy(cpu_devices(parse_mesh(mesh).size()), streamed_options(mesh));
    expect_as_on_one_device(strategy);
  }
}

TEST(TrainerStreamsTest, EvaluatesAndPredictsAsOneDeviceOverWorkers) {
  for (const char* mesh : {"pipeline=2", "data=2,pipeline=2"}) {
    const int ranks = parse_mesh(mesh).size() / 2;
    expect_no_worker_failed(run_strategies(
        {ranks, ranks}, [](MultiWorkerMirroredStrategy& strategy) { expect_as_on_one_device(strategy); },
        [&](int, WorkerSetUp& set_up) { set_up.options = streamed_options(mesh); }));
  }
}

/// Notes the batches that the first stage has begun.
class FirstStage {
 public:
  void begin(int64_t batch) {
    const std::lock_guard lock(mutex_);
    begun_.insert(batch);
    changed_.notify_all();
  }
  void wait_for(int64_t batch) {
    std::unique_lock lock(mutex_);
    TORCH_CHECK(changed_.wait_for(lock, std::chrono::seconds(15), [&] { return begun_.contains(batch); }),
                "the first stage waits for the last one: it has not begun batch ", batch);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int64_t> begun_;
};

TEST(TrainerStreamsTest, StagesPredictTheNextBatchWhileLaterOnesStillComputeTheOneBefore) {
  const auto stages = std::make_shared<FirstStage>();
  MirroredStrategy strategy(cpu_devices(2), streamed_options("pipeline=2"));
  const auto make_model = [&](ReplicaContext& replica) {
    const auto batch_of = [](const torch::Tensor& x) { return x[0][0].item<int64_t>() / kBatch; };
    torch::nn::Sequential layers(torch::nn::Functional([=](const torch::Tensor& x) {
                                   stages->begin(batch_of(x));
                                   return x * 1;
                                 }),
                                 torch::nn::Functional([=](const torch::Tensor& x) {
                                   const int64_t next = batch_of(x) + 1;
                                   const bool ends_group = next % int64_t{detail::kStreamedBatches} == 0;
                                   if (!ends_group && next < kNumBatches) stages->wait_for(next);
                                   return x * 2;
                                 }));
    return Pipeline(replica.axis("pipeline"), layers, PipelineOptions{.micro_batches = 2, .cuts = {1}});
  };
  Trainer<Pipeline> trainer(
      strategy, make_model,
      [](Pipeline&) { return streamed_sgd({torch::zeros({1}, torch::requires_grad())}); }, cross_entropy);
  const auto numbers = torch::arange(kNumExamples, torch::kDouble).unsqueeze(1);
  EXPECT_TRUE(torch::equal(trainer.predict(numbers, {.global_batch_size = kBatch}), numbers * 2));
}

struct CountTestSteps : Callback {
  explicit CountTestSteps(int64_t last) : last_(last) {}
  void on_test_begin(FitState&) override { count = 0; }
  void on_test_step_end(FitState& state) override {
    EXPECT_EQ(state.test_step, ++count);
    EXPECT_EQ(state.test_examples, std::min(count * kBatch, kNumExamples));
    if (count == last_) state.stop("enough");
  }
  int64_t count = 0;

 private:
  const int64_t last_;
};

TEST(TrainerStreamsTest, CallbacksSeeEachBatchAndMayStopTheEvaluation) {
  const auto examples = streamed_examples();
  for (const int64_t last : {int64_t{3}, kNumBatches + 1}) {
    MirroredStrategy strategy(cpu_devices(2), streamed_options("pipeline=2"));
    auto trainer = streamed_trainer(strategy);
    const auto counter = std::make_shared<CountTestSteps>(last);
    FitOptions<> fit{.steps_per_epoch = 1,
                     .validation = {examples.data, examples.target},
                     .callbacks = {counter},
                     .batches = {.global_batch_size = kBatch}};
    const auto history = trainer.fit(examples.data, examples.target, fit);
    EXPECT_EQ(counter->count, std::min(last, kNumBatches));
    EXPECT_EQ(history.epochs.size(), last > kNumBatches ? 1U : 0U);
  }
}

TEST(TrainerStreamsTest, AnErrorNamesTheStageAndTheBatchOfTheDataset) {
  MirroredStrategy strategy(cpu_devices(2), streamed_options("pipeline=2"));
  Trainer<Pipeline> trainer(
      strategy,
      [&](ReplicaContext& replica) {
        auto layers = streamed_layers();
        layers->push_back(torch::nn::Functional([](const torch::Tensor& x) {
          TORCH_CHECK(x.size(0) != 1, "one example is too few");
          return x;
        }));
        return streamed_pipeline(replica, layers);
      },
      streamed_sgd, cross_entropy);
  const auto data = streamed_examples().data;
  EXPECT_THAT(message_of<StepError>([&] { trainer.predict(data, {.global_batch_size = kBatch}); }),
              AllOf(HasSubstr("failed in a prediction of several batches: one example is too few"),
                    HasSubstr("in the forward of stage 1 for micro-batch 0 of batch 20")));
}

}  // namespace
}  // namespace lockstep
