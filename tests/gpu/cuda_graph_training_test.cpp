// CudaGraph: a captured training gives the same as calling the function.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <optional>
#include <sstream>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/callbacks/learning_rate_schedule.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

/// Everything a graph might get wrong: statistics kept in place, random masks, weights.
struct DropoutNetImpl : torch::nn::Cloneable<DropoutNetImpl> {
  DropoutNetImpl() { reset(); }
  void reset() override {
    convolution = register_module("convolution", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    head = register_module("head", torch::nn::Linear(4 * 4 * 4, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(norm(convolution(x)));
    return head(torch::dropout(y.flatten(1), 0.25, is_training()));
  }
  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(DropoutNet);

struct GraphPlacement {
  std::string name;
  std::vector<std::string> devices;
  int replicas_per_device = 1;
  std::string ops = "auto";
  std::string compression = "none";
};

std::vector<torch::Tensor> state_of(const DropoutNet& model, FusedAdam& optimizer) {
  auto state = on_host(model->parameters());
  for (auto& buffer : on_host(model->buffers())) state.push_back(buffer);
  for (const auto& parameter : model->parameters()) {
    const auto& adam =
        static_cast<const FusedAdamParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
    for (auto& tensor : on_host({adam.step(), adam.exp_avg(), adam.exp_avg_sq()})) state.push_back(tensor);
    if (parameter.grad().defined()) state.push_back(parameter.grad().cpu());
  }
  return state;
}

torch::Tensor train_step(ReplicaContext& replica, DropoutNet& model, FusedAdam& optimizer, Mean& mean,
                         CategoricalAccuracy& accuracy, const double& clip_norm, const Example& batch) {
  optimizer.zero_grad();
  const auto logits = model->forward(batch.data);
  const auto losses = torch::cross_entropy_loss(logits, batch.target, {}, at::Reduction::None);
  const auto loss = compute_average_loss(replica, losses);
  loss.backward();
  replica.apply_gradients(optimizer, {.clip_norm = clip_norm});
  mean.update(losses);
  accuracy.update(logits, batch.target);
  return loss.detach();
}

/// A model in training, with or without graphs.
class Training {
 public:
  explicit Training(const GraphPlacement& placement, bool with_graph)
      : strategy_(
            placement.devices,
            {.cross_device_ops = ops_named(placement.ops),
             .seed = 4,
             .replicas_per_device = placement.replicas_per_device,
             .communication = {.gradient_compression = make_gradient_compression(placement.compression)}}),
        step(train_step, {.enabled = with_graph, .warm_up_runs = 2}) {
    torch::manual_seed(17);
    model.emplace(strategy_.scope([](ReplicaContext&) { return DropoutNet(); }));
    optimizer.emplace(strategy_.scope(
        [&](ReplicaContext& replica) { return FusedAdam((*model)[replica]->parameters(), 1e-2); }));
    mean.emplace(strategy_.scope([](ReplicaContext&) { return Mean(); }));
    accuracy.emplace(strategy_.scope([](ReplicaContext&) { return CategoricalAccuracy(); }));
  }

  void run(PerReplica<Example>& batch) {
    const auto loss = strategy_.run(step, *model, *optimizer, *mean, *accuracy, clip_norm, batch);
    losses.push_back(strategy_.reduce(ReduceOp::kSum, loss));
  }

  /// 22 images in batches of 6: each epoch ends with one of 4.
  void run_epochs(int epochs) {
    const auto data = images_of_three_classes(22);
    auto batches = strategy_.distribute_dataset(TensorDataset(data.data, data.target),
                                                {.global_batch_size = 6, .shuffle_seed = 3});
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (auto& batch : batches) {
        set_rate(1e-2 / (1 + static_cast<double>(losses.size())));
        run(batch);
      }
    }
  }

  void set_rate(double rate) {
    for (auto& replica : optimizer->local_values()) set_learning_rate(replica, rate);
  }

  /// The same images on every replica.
  PerReplica<Example> batch_of(const Example& data) {
    auto batch = strategy_.distribute_values_from_function([&](const ValueContext& context) {
      const auto replica = static_cast<size_t>(context.replica_id_in_sync_group);
      return BatchTraits<Example>::to(data, strategy_.devices()[replica].torch_device());
    });
    const int64_t count = data.data.size(0);
    const auto replicas = batch.local_values().size();
    batch.set_batch_sizes({count * static_cast<int64_t>(replicas), std::vector<int64_t>(replicas, count)});
    return batch;
  }

  void expect_equal(Training& other) {
    for (size_t i = 0; i < model->local_values().size(); ++i) {
      const auto own = state_of(model->local_values()[i], optimizer->local_values()[i]);
      const auto others = state_of(other.model->local_values()[i], other.optimizer->local_values()[i]);
      ASSERT_EQ(own.size(), others.size());
      for (size_t t = 0; t < own.size(); ++t)
        EXPECT_TRUE(torch::equal(own[t], others[t])) << "replica " << i << ", tensor " << t;
    }
    EXPECT_TRUE(bit_equal(on_host(losses), on_host(other.losses)));
    EXPECT_EQ(result(*mean), result(*other.mean));
    EXPECT_EQ(result(*accuracy), result(*other.accuracy));
    EXPECT_EQ(strategy_.optimizer_group(optimizer->primary())->finished_steps(),
              other.strategy_.optimizer_group(other.optimizer->primary())->finished_steps());
  }

 private:
  MirroredStrategy strategy_;

 public:
  CudaGraph<decltype(&train_step)> step;
  std::optional<Mirrored<DropoutNet>> model;
  std::optional<Mirrored<FusedAdam>> optimizer;
  std::optional<Mirrored<Mean>> mean;
  std::optional<Mirrored<CategoricalAccuracy>> accuracy;
  double clip_norm = 0.5;
  std::vector<torch::Tensor> losses;

  MirroredStrategy& strategy() { return strategy_; }
};

class CudaGraphTraining : public testing::TestWithParam<GraphPlacement> {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_GPUS(static_cast<int>(GetParam().devices.size()));
    forget_races();
  }

  const DeterministicConvolutions deterministic_;
};

INSTANTIATE_TEST_SUITE_P(
    Placements, CudaGraphTraining,
    testing::Values(GraphPlacement{"OneReplica", {"gpu:0"}}, GraphPlacement{"TwoOnOneGpu", {"gpu:0"}, 2},
                    GraphPlacement{"ThreeOnOneGpu", {"gpu:0"}, 3},
                    GraphPlacement{"OneReplicaByNccl", {"gpu:0"}, 1, "nccl"},
                    GraphPlacement{"TwoGpus", {"gpu:0", "gpu:1"}, 1, "hierarchical_copy"},
                    GraphPlacement{"TwoGpusByNccl", {"gpu:0", "gpu:1"}, 1, "nccl"},
                    GraphPlacement{"TwoGpusByNcclRounded", {"gpu:0", "gpu:1"}, 1, "nccl", "bfloat16"}),
    [](const auto& info) { return info.param.name; });

TEST_P(CudaGraphTraining, EqualsCallsBitForBitWithASmallerLastBatchAndASchedule) {
  Training called(GetParam(), false);
  called.run_epochs(6);
  Training captured(GetParam(), true);
  captured.run_epochs(6);
  captured.expect_equal(called);
  EXPECT_EQ(called.step.statistics().captures, 0);
  EXPECT_EQ(captured.step.statistics().captures, 1);
  EXPECT_GE(captured.step.statistics().replays, 8);
  expect_no_races();
}

TEST_P(CudaGraphTraining, CapturesAgainForAnotherConstant) {
  Training called(GetParam(), false);
  Training captured(GetParam(), true);
  for (auto* training : {&called, &captured}) {
    auto batch = training->batch_of(images_of_three_classes(4));
    for (int step = 0; step < 20; ++step) {
      if (step == 10) training->clip_norm = 0.01;
      training->run(batch);
    }
  }
  captured.expect_equal(called);
  EXPECT_EQ(captured.step.statistics().captures, 2);
}

TEST_P(CudaGraphTraining, FollowsModulesAndOptimizersThatAreChangedBetweenRuns) {
  Training called(GetParam(), false);
  Training captured(GetParam(), true);
  for (auto* training : {&called, &captured}) {
    auto batch = training->batch_of(images_of_three_classes(4));
    const auto run = [&](int steps) {
      for (int step = 0; step < steps; ++step) training->run(batch);
    };
    run(8);
    training->model->train(false);  // no dropout, running statistics
    run(8);
    training->model->train();
    for (auto& adam : training->optimizer->local_values()) {  // moves the moments to other memory
      std::stringstream stream;
      torch::save(adam, stream);
      torch::load(adam, stream);
    }
    run(8);
    for (auto& adam : training->optimizer->local_values())
      static_cast<FusedAdamOptions&>(adam.param_groups()[0].options()).weight_decay(0.1);
    run(8);
    for (auto& model : training->model->local_values()) model->convolution->weight.set_requires_grad(false);
    run(8);
    for (auto& adam : training->optimizer->local_values()) adam.zero_grad();
    run(2);
    reset(*training->mean);
    run(2);
  }
  captured.expect_equal(called);
  EXPECT_GE(captured.step.statistics().replays, 10);
}

TEST_P(CudaGraphTraining, ReplaysMakeTheHostWaitForNothing) {
  Training training(GetParam(), true);
  auto batch = training.batch_of(images_of_three_classes(4));
  for (int step = 0; step < 8; ++step) training.run(batch);
  const auto before = training.step.statistics();
  {
    const HostMustNotWait guard;
    for (int step = 0; step < 8; ++step) {
      training.set_rate(1e-3 / (step + 1));
      training.run(batch);
    }
  }
  EXPECT_EQ(training.step.statistics().replays, before.replays + 8);
  expect_no_races();
}

TEST_P(CudaGraphTraining, LeavesBatchesAndEarlierResultsAlone) {
  Training training(GetParam(), true);
  std::vector<PerReplica<Example>> batches;
  for (int i = 0; i < 3; ++i) {
    auto data = images_of_three_classes(4);
    data.data.add_(i);
    batches.push_back(training.batch_of(data));
  }
  std::vector<torch::Tensor> before;
  for (const auto& batch : batches) {
    for (const auto& shard : batch.local_values()) before.push_back(shard.data.cpu());
  }
  std::vector<PerReplica<torch::Tensor>> results;
  std::vector<torch::Tensor> seen;
  for (int step = 0; step < 12; ++step) {
    results.push_back(training.strategy().run(training.step, *training.model, *training.optimizer,
                                              *training.mean, *training.accuracy, training.clip_norm,
                                              batches[static_cast<size_t>(step % 3)]));
    for (const auto& loss : results.back().local_values()) seen.push_back(loss.cpu());
  }
  std::vector<torch::Tensor> after;
  for (const auto& batch : batches) {
    for (const auto& shard : batch.local_values()) after.push_back(shard.data.cpu());
  }
  EXPECT_TRUE(bit_equal(after, before));
  std::vector<torch::Tensor> later;
  for (const auto& result : results) {
    for (const auto& loss : result.local_values()) later.push_back(loss.cpu());
  }
  EXPECT_TRUE(bit_equal(later, seen));
  EXPECT_GT(training.step.statistics().replays, 0);
  expect_no_races();
}

}  // namespace
}  // namespace lockstep
