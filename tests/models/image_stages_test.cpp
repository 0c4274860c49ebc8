// Models of images that are cut into stages. Oracle: the same model on one device, which adds up the
// gradients of the same micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/models/batch_norm.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/tests/models/staged_images.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/metrics/loss_functions.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

template <typename Model>
struct ImageRun {
  Model model;
  std::vector<double> losses;
  std::vector<double> norms;
};

template <typename Case>
ImageRun<typename Case::Net> trained_whole_net(const ImageLayout& layout, int steps) {
  ImageRun<typename Case::Net> run{whole_images_net<Case>(), {}, {}};
  auto sgd = image_sgd(run.model->parameters());
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    const auto all = images_of_step<Case>(step);
    double sum = 0;
    for (int replica = 0; replica < layout.replicas(); ++replica) {
      const auto shard = part_of_images(all, replica, layout.replicas());
      for (int i = 0; i < layout.micro_batches; ++i) {
        const auto micro = part_of_images(shard, i, layout.micro_batches);
        const auto loss = cross_entropy(run.model->forward(micro.data), micro.target).sum() / Case::kImages;
        loss.backward();
        sum += loss.template item<double>();
      }
    }
    run.norms.push_back(torch::nn::utils::clip_grad_norm_(run.model->parameters(), 1));
    sgd.step();
    run.losses.push_back(sum);
  }
  return run;
}

/// Returns the largest difference of a rank's tensors from its parts of those of the whole model.
double difference_of_net(const torch::nn::Module& own, const torch::nn::Module& whole, bool with_buffers) {
  double most = 0;
  const auto compare = [&](const auto& owns, const auto& wholes) {
    TORCH_CHECK(owns.keys() == wholes.keys());
    for (const auto& item : owns) {
      const auto* place = sharded_parameter_of(item.value());
      const auto& values = wholes[item.key()];
      const auto part = place != nullptr ? part_of_values(values, *place) : values;
      if (part.numel() > 0) most = std::max(most, (part - item.value()).abs().max().template item<double>());
    }
  };
  compare(own.named_parameters(), whole.named_parameters());
  if (with_buffers) compare(own.named_buffers(), whole.named_buffers());
  return most;
}

template <typename Case>
void expect_images_like_one_device(Strategy& strategy, const ImageLayout& layout,
                                   const ImageRun<typename Case::Net>& whole) {
  const double close = layout.tolerance;
  const torch::AutoGradMode grad(true);
  auto model =
      strategy.scope([&](ReplicaContext& replica) { return staged_images_net<Case>(replica, layout); });
  auto sgd = strategy.scope([&](ReplicaContext& replica) { return image_sgd(model[replica]->parameters()); });
  const auto count = whole.losses.size();
  for (size_t step = 0; step < count; ++step) {
    const auto results = strategy.run(staged_images_step<Case>, model, sgd, static_cast<int>(step));
    std::vector<double> losses;
    for (const auto& [loss, norm] : results.local_values()) {
      losses.push_back(loss);
      ASSERT_NEAR(norm, whole.norms[step], close * std::max(1.0, whole.norms[step])) << "step " << step;
    }
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    ASSERT_NEAR(loss, whole.losses[step], close) << "step " << step;
  }
  // Replicas have running statistics of their own examples.
  const bool has_one_replica = layout.replicas() == 1;
  for (const auto& own : model.local_values())
    EXPECT_LE(difference_of_net(*own, *whole.model, has_one_replica), close);
  if (!has_one_replica) return;
  const auto images = images_of_step<Case>(90).data;
  whole.model.ptr()->eval();
  const torch::NoGradGuard no_grad;
  const auto expected = whole.model.ptr()->forward(images);
  whole.model.ptr()->train();
  const auto differences = strategy.run(
      [&](ReplicaContext&, Pipeline& net) {
        net->eval();
        return (net->forward(images) - expected).abs().max().template item<double>();
      },
      model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, 10 * close);
}

template <typename Case>
void expect_images_on(const std::vector<ImageLayout>& layouts, int steps) {
  constexpr size_t kFewLayouts = std::is_same_v<Case, MobileNetCase> ? 1 : 3;
  steps = few_if_sanitized(steps, 2);
  for (const auto& layout : few_if_sanitized(layouts, kFewLayouts)) {
    SCOPED_TRACE(layout.str());
    const auto whole = trained_whole_net<Case>(layout, steps);
    MirroredStrategy strategy(cpu_devices(parse_mesh(layout.mesh).size()), image_strategy(layout));
    expect_images_like_one_device<Case>(strategy, layout, whole);
  }
}

TEST(ImageStagesTest, ASimpleCnnTrainsAsOnOneDevice) {
  expect_images_on<CnnCase>({{"pipeline=1"},
                             {"pipeline=2"},
                             {"pipeline=3", "gpipe"},
                             {"pipeline=2", "zb-h1"},
                             {"pipeline=2", "1f1b", 1},
                             {"pipeline=3", "1f1b", 16},  // more micro-batches than images
                             {"data=2,pipeline=2"},
                             {"pipeline=2,data=2", "zb-h1", 3},
                             {"data=2,pipeline=2", "1f1b", 4, 1},
                             {"data=2,pipeline=3", "1f1b", 4, 2},
                             {"data=2,pipeline=2", "zb-h1", 4, 3}},
                            /*steps=*/6);
}

TEST(ImageStagesTest, AMobileNetTrainsAsOnOneDevice) {
  expect_images_on<MobileNetCase>({{"pipeline=2"},
                                   {"pipeline=4", "gpipe", 3},
                                   {"pipeline=2", "zb-h1", 3},
                                   {"pipeline=2", "zb-v", 3},
                                   {"pipeline=2", "interleaved"}},
                                  /*steps=*/2);
}

TEST(ImageStagesTest, AMobileNetOfReplicasTrainsAsOnOneDevice) {
  expect_images_on<MobileNetCase>({{"data=2,pipeline=2", "zb-v", 2},
                                   {"data=2,pipeline=2", "1f1b", 2, 1},
                                   {"data=2,pipeline=2", "1f1b", 2, 2},
                                   {"data=2,pipeline=2", "1f1b", 2, 3}},
                                  /*steps=*/2);
}

TEST(ImageStagesTest, AMobileNetTakesMicroBatchesOfOneImageAndOfNone) {
  // Norms of four values for each channel magnify rounding.
  expect_images_on<MobileNetCase>({{"pipeline=2", "1f1b", 30, 0, 1e-8}, {"pipeline=4", "zb-h1", 30, 0, 1e-8}},
                                  /*steps=*/1);
}

TEST(ImageStagesTest, WorkersTrainAMobileNetAsOneDevice) {
  const ImageLayout layout{"pipeline=4"};
  const auto whole = trained_whole_net<MobileNetCase>(layout, 2);
  // Running the whole net changes its mode, and workers are threads.
  std::vector<ImageRun<MobileNetV2>> runs;
  for (int rank = 0; rank < 2; ++rank) {
    runs.push_back(whole);
    runs.back().model = MobileNetV2(std::dynamic_pointer_cast<MobileNetV2Impl>(whole.model->clone()));
  }
  expect_no_worker_failed(run_strategies(
      {1, 3},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto rank = static_cast<size_t>(strategy.cluster_resolver()->task_id());
        expect_images_like_one_device<MobileNetCase>(strategy, layout, runs[rank]);
      },
      [&](int, WorkerSetUp& set_up) { set_up.options = image_strategy(layout); }));
}

TEST(ImageStagesTest, StatisticsAreThoseOfAllImagesInAForwardOfLayersThatTrain) {
  const ImageLayout layout{"pipeline=4"};
  const auto images = images_of_step<MobileNetCase>(7).data;
  const torch::NoGradGuard no_grad;
  const auto measure = [&](torch::nn::Module& module) {
    module.eval();
    for (const auto& child : module.modules())
      if (child->as<BatchNorm>() != nullptr) child->train();
  };
  auto whole = whole_images_net<MobileNetCase>();
  measure(*whole);
  whole->forward(images);
  MirroredStrategy strategy(cpu_devices(4), image_strategy(layout));
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return staged_images_net<MobileNetCase>(replica, layout); });
  strategy.run(
      [&](ReplicaContext&, Pipeline& net) {
        measure(*net);
        net->forward(images);
      },
      model);
  int64_t counted = 0;
  for (const auto& own : model.local_values()) {
    EXPECT_LE(difference_of_net(*own, *whole, /*with_buffers=*/true), kCloseImages);
    for (const auto& item : own->named_buffers())
      if (item.value().dim() == 0) counted += item.value().item<int64_t>();
  }
  EXPECT_EQ(counted, 4 * 52);  // layers, once on each rank
}

TEST(ImageStagesTest, CostsAreTheMultiplicationsOfEachBlock) {
  // Known of the paper's network: 300 million multiplications at 224 pixels, and 3.4 million parameters.
  const auto costs = mobilenet_v2_costs({}, 224);
  ASSERT_EQ(costs.size(), MobileNetV2(MobileNetV2Options{})->blocks().size());
  double sum = 0;
  for (const double cost : costs) sum += cost;
  EXPECT_NEAR(sum, 300.8e6, 0.1e6);
  EXPECT_EQ(costs.front(), 112.0 * 112 * 32 * 27);
  EXPECT_EQ(costs.back(), 1280.0 * 1000);
  EXPECT_EQ(costs[1], 112.0 * 112 * 32 * (9 + 16));
  EXPECT_EQ(costs[2], 112.0 * 112 * 16 * 96 + 56.0 * 56 * 96 * (9 + 24));
  EXPECT_EQ(simple_cnn_costs({}), (std::vector<double>{26 * 26 * 32 * 9, 32 * 13 * 13 * 128, 128 * 10}));
}

TEST(ImageStagesTest, MistakesAreRefused) {
  const ImageLayout layout{"pipeline=4"};
  MirroredStrategy strategy(cpu_devices(4), image_strategy(layout));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] {
        strategy.scope([&](ReplicaContext& replica) { return staged_images_net<CnnCase>(replica, layout); });
      }),
      HasSubstr("3 blocks"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) {
                  const auto net = whole_images_net<MobileNetCase>();
                  auto blocks = net->blocks();
                  blocks.pop_back();
                  return Pipeline(replica.axis("pipeline"), net.ptr(), blocks);
                });
              }),
              HasSubstr("[Pipeline] expected each parameter of the model in a block, but none has "
                        "classifier.1.weight"));
}

}  // namespace
}  // namespace lockstep
