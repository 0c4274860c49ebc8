#include "lockstep/apps/shared/session/pipeline_step_times.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep::apps {
namespace {

constexpr int kMicroBatches = 3;

/// Fits a model in two stages for two epochs. Returns what was measured.
std::vector<PipelineRecord> measured_in_fit(const std::string& mesh, int64_t steps_per_epoch) {
  const Mesh parsed = parse_mesh(mesh);
  MirroredStrategy strategy(cpu_devices(parsed.size()), {.intra_op_threads = 1, .seed = 1, .mesh = parsed});
  const ForwardBackward<Pipeline, Example> forward_backward = [](ReplicaContext& replica, Pipeline& model,
                                                                 const Example& shard,
                                                                 const BackwardOptions&) {
    const auto result = model->forward_backward(replica, shard.data, shard.target, {.losses = cross_entropy});
    return StepOutputs{.losses = result.losses, .outputs = result.outputs, .targets = shard.target};
  };
  Trainer<Pipeline> trainer(
      strategy,
      [](ReplicaContext& replica) {
        const torch::nn::Sequential layers(torch::nn::Linear(4, 8), torch::nn::Tanh(),
                                           torch::nn::Linear(8, 3));
        return Pipeline(replica.axis("pipeline"), layers, PipelineOptions{.micro_batches = kMicroBatches});
      },
      [](std::vector<torch::Tensor> parameters) { return torch::optim::SGD(parameters, 0.1); }, cross_entropy,
      {}, {.forward_backward = forward_backward});
  const TensorDataset examples(torch::rand({24, 4}), torch::arange(24).remainder(3));
  auto batches = strategy.distribute_dataset(examples, {.global_batch_size = 6, .shuffle_seed = 1});
  std::vector<PipelineRecord> records;
  const auto stages = trainer.model().map([](const Pipeline& model) { return &model.ptr()->stages(); });
  FitOptions<> fit{.epochs = 2, .steps_per_epoch = steps_per_epoch};
  fit.callbacks.push_back(std::make_shared<PipelineStepTimes>(
      stages, [&](PipelineRecord record) { records.push_back(std::move(record)); }));
  trainer.fit(batches, fit);
  return records;
}

TEST(PipelineStepTimesTest, AreThoseOfTheThirdStepOfAFit) {
  const auto schedule = one_forward_one_backward_schedule(2, kMicroBatches);
  for (const char* mesh : {"pipeline=2", "data=2,pipeline=2"}) {
    SCOPED_TRACE(mesh);
    for (const int64_t steps_per_epoch : {2, 4}) {
      const auto records = measured_in_fit(mesh, steps_per_epoch);
      ASSERT_EQ(records.size(), 1U);
      const auto& record = records.front();
      EXPECT_EQ(record.step, 3);
      EXPECT_EQ(record.schedule, schedule.name);
      EXPECT_EQ(record.ranks, 2);
      EXPECT_EQ(record.stages, 2);
      EXPECT_EQ(record.micro_batches, kMicroBatches);
      std::vector<PipelineAction> planned;
      for (const auto& rank : schedule.actions) planned.insert(planned.end(), rank.begin(), rank.end());
      std::vector<PipelineAction> done;
      for (const auto& action : record.actions) {
        done.push_back(action.action);
        EXPECT_LE(action.begin, action.end);
      }
      EXPECT_EQ(done, planned);
    }
  }
}

TEST(PipelineStepTimesTest, AFitOfTwoStepsHasNone) {
  EXPECT_TRUE(measured_in_fit("pipeline=2", 1).empty());
}

}  // namespace
}  // namespace lockstep::apps
