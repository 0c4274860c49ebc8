#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/training/metrics/loss_functions.h"

// Models of images that are cut into stages, and their data, in float64.
namespace lockstep {

inline constexpr double kCloseImages = 1e-12;
inline constexpr int64_t kClasses = 5;

struct CnnCase {
  using Net = SimpleCnn;
  static constexpr int64_t kImages = 11;  // which neither replicas nor micro-batches divide
  static constexpr int64_t kChannels = 1, kSize = 9;
  static Net make(const PartWrapper& wrap = {}) {
    return SimpleCnn(SimpleCnnOptions{.num_classes = kClasses, .image_size = kSize}, wrap);
  }
};

struct MobileNetCase {
  using Net = MobileNetV2;
  static constexpr int64_t kImages = 17;  // With few in a micro-batch, BatchNorm magnifies rounding.
  static constexpr int64_t kChannels = 3, kSize = 33;
  static MobileNetV2Options options() {
    return {.num_classes = kClasses, .width_multiplier = 0.25, .dropout = 0};
  }
  static Net make(const PartWrapper& wrap = {}) { return MobileNetV2(options(), wrap); }
};

struct ImageLayout {
  std::string mesh;
  std::string schedule = "1f1b";
  int micro_batches = 4;
  int stage = 0;  ///< of ZeRO
  double tolerance = kCloseImages;

  int replicas() const { return mesh.find("data=2") == std::string::npos ? 1 : 2; }
  std::string str() const {
    return mesh + " by " + schedule + " in " + std::to_string(micro_batches) + " at stage " +
           std::to_string(stage);
  }
};

inline StrategyOptions image_strategy(const ImageLayout& layout) {
  return {
      .intra_op_threads = 1, .seed = 3, .mesh = parse_mesh(layout.mesh), .sharding = {.stage = layout.stage}};
}

template <typename Case>
typename Case::Net whole_images_net(const PartWrapper& wrap = {}) {
  const auto generator = at::detail::createCPUGenerator(12);
  const RankRandom apart(generator);  // Workers that are threads share the process's generator.
  auto net = Case::make(wrap);
  net->to(torch::kDouble);
  return net;
}

template <typename Case>
Pipeline staged_images_net(ReplicaContext& replica, const ImageLayout& layout) {
  PartWrapper wrap;
  if (layout.stage == 3) {
    wrap = [options = along(replica.axis("data"))](const ModelPart& part) {
      const auto unit = std::make_shared<ShardedModule>(part.module, options);
      return WrappedPart{unit, [unit](const PartFunction& function, const torch::Tensor& x) {
                           return unit->call(function, x);
                         }};
    };
  }
  const auto net = whole_images_net<Case>(wrap);
  return Pipeline(replica.axis("pipeline"), net.ptr(), net->blocks(),
                  PipelineOptions{.schedule = layout.schedule, .micro_batches = layout.micro_batches});
}

template <typename Case>
Example images_of_step(int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 + step));
  const auto images = torch::randn({Case::kImages, Case::kChannels, Case::kSize, Case::kSize}, generator,
                                   torch::dtype(torch::kDouble));
  return {images, (torch::arange(Case::kImages) * 3 + step).remainder(kClasses)};
}

/// Part number `index` of `count` parts of about equal size.
inline Example part_of_images(const Example& all, int index, int count) {
  const int64_t size = all.data.size(0);
  const int64_t begin = size * index / count;
  const int64_t length = size * (index + 1) / count - begin;
  return {all.data.narrow(0, begin, length), all.target.narrow(0, begin, length)};
}

inline torch::optim::SGD image_sgd(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
}

template <typename Case>
std::pair<double, double> staged_images_step(ReplicaContext& replica, Pipeline& model, torch::optim::SGD& sgd,
                                             int step) {
  sgd.zero_grad();
  const auto shard = part_of_images(images_of_step<Case>(step), replica.replica_id(), replica.num_replicas());
  const auto result = model->forward_backward(replica, shard.data, shard.target, {.losses = cross_entropy});
  TORCH_CHECK(result.losses.sizes() == shard.target.sizes());
  TORCH_CHECK(result.outputs.sizes() == at::IntArrayRef({shard.data.size(0), kClasses}));
  const auto norm = replica.apply_gradients(sgd, {.clip_norm = 1});
  return {result.losses.sum().template item<double>() / Case::kImages, norm.template item<double>()};
}

}  // namespace lockstep
