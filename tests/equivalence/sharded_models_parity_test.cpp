// Models whose parts are units train as on one device: families of Gpt for 20 steps, MobileNetV2 for two.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/equivalence/sharded_parity.h"
#include "lockstep/tests/models/gpt/small_gpts.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

/// Draws a parameter's values: matrices and kernels scaled for their inputs, vectors near 0, or near 1 if
/// they are a norm's weights.
void draw(torch::Tensor parameter, const std::string& name, at::Generator& generator) {
  const torch::NoGradGuard no_grad;
  const auto values = torch::randn(parameter.sizes(), generator, torch::kDouble);
  if (parameter.dim() < 2) {
    parameter.copy_(0.1 * values + (name.ends_with("weight") ? 1 : 0));
  } else {
    const auto num_inputs = static_cast<double>(parameter.numel() / parameter.size(0));
    parameter.copy_(values / std::sqrt(num_inputs));
  }
}

/// Gives each part values of the place's generator, in float64, and makes it a unit if the place has units.
PartWrapper parts_for(NetPlace& place) {
  return [&place](const ModelPart& part) {
    part.module->to(torch::kDouble);
    for (const auto& item : part.module->named_parameters()) draw(item.value(), item.key(), place.values);
    if (!place.units) return WrappedPart{part.module};
    UnitOptions options = *place.units;
    options.name = part.name;
    const auto unit = std::make_shared<ShardedModule>(part.module, options);
    return WrappedPart{unit, [unit](const PartFunction& function, const torch::Tensor& x) {
                         return unit->call(function, x);
                       }};
  };
}

/// A net around a model that maps examples to logits.
template <typename Model>
struct ModelNet final : ParityNetImpl {
  explicit ModelNet(Model own) : model(register_module("model", std::move(own))) {}
  torch::Tensor losses(const Example& batch) override {
    const auto logits = model->forward(batch.data);
    // Of tokens, each position has logits and a target.
    return torch::cross_entropy_loss(logits.flatten(0, -2), batch.target.flatten(), {}, at::Reduction::None)
        .view({batch.data.size(0), logits.size(0) == 0 ? 1 : -1})
        .mean(1);
  }
  Model model;
};

struct ModelRanks {
  const char* name;
  ParityLayout layout;
};

void PrintTo(const ModelRanks& ranks, std::ostream* stream) {
  *stream << ranks.name;
}

std::vector<ModelRanks> model_ranks() {
  const Mesh hybrid{{"data", 2}, {"shard", 2}};
  return {{"stage1_2", {.workers = {2}, .stage = 1}},
          {"stage2_4", {.workers = {4}, .stage = 2}},
          {"stage3_1", {.workers = {1}, .stage = 3}},
          {"stage3_2", {.workers = {2}, .stage = 3}},
          {"stage3_4", {.workers = {4}, .stage = 3}},
          {"stage3_2x2", {.workers = {4}, .mesh = hybrid, .stage = 3}},
          {"stage3_2_workers", {.workers = {1, 1}, .stage = 3}},
          {"stage3_2x2_workers", {.workers = {2, 2}, .mesh = hybrid, .stage = 3}}};
}

class ShardedGptParity : public testing::TestWithParam<std::tuple<NamedGpt, ModelRanks>> {};

TEST_P(ShardedGptParity, TwentyStepsEqualOneDevice) {
  const auto& [family, ranks] = GetParam();
  torch::manual_seed(21);
  const auto tokens = torch::randint(family.options.vocabulary_size, {13, 8}, torch::kLong);
  const ParityTraining training{.make_net = [options = family.options](NetPlace& place) -> ParityNet {
                                  Gpt gpt(options, parts_for(place));
                                  if (place.replica != nullptr) {
                                    gpt->set_block_runner([](const auto& block, const torch::Tensor& x) {
                                      return recompute(block, x);
                                    });
                                  }
                                  return std::make_shared<ModelNet<Gpt>>(gpt);
                                },
                                .data = {tokens.narrow(1, 0, 7), tokens.narrow(1, 1, 7)},
                                .optimizers = {"fused_adamw"},
                                .micro_batches = 2,
                                .clip_norm = 0.5,
                                .bucket_bytes = 2048};
  EXPECT_EQ(problem_of(training, ranks.layout), "");
}

std::string name_of_gpt(const testing::TestParamInfo<std::tuple<NamedGpt, ModelRanks>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShardedGptParity,
                         testing::Combine(testing::Values(small_gpts()[0], small_gpts()[1]),
                                          testing::ValuesIn(model_ranks())),
                         name_of_gpt);
INSTANTIATE_TEST_SUITE_P(OtherFamilies, ShardedGptParity,
                         testing::Combine(testing::Values(small_gpts()[2], small_gpts()[3]),
                                          testing::Values(model_ranks().back())),
                         name_of_gpt);

/// Images take long under a sanitizer.
std::vector<ModelRanks> image_ranks() {
  const auto all = model_ranks();
  return kHasSanitizer ? std::vector<ModelRanks>{all.front(), all.back()} : all;
}

class ShardedImageParity : public testing::TestWithParam<ModelRanks> {};

// A freshly initialized MobileNetV2 magnifies rounding; see sync_batch_norm_parity_test.cpp.
TEST_P(ShardedImageParity, TwoStepsOfMobileNetV2AndItsStatisticsEqualOneDevice) {
  torch::manual_seed(21);
  const ParityTraining training{
      .make_net = [](NetPlace& place) -> ParityNet {
        MobileNetV2Options options{.num_classes = 3, .width_multiplier = 0.25, .dropout = 0};
        if (place.replica != nullptr) {
          options.norm_layer = [](int64_t channels) { return torch::nn::AnyModule(SyncBatchNorm(channels)); };
        }
        return std::make_shared<ModelNet<MobileNetV2>>(MobileNetV2(options, parts_for(place)));
      },
      .data = {torch::randn({13, 3, 64, 64}, torch::kDouble), torch::randint(0, 3, {13})},
      .optimizers = {"sgd"},
      .batch_size = 7,
      .steps = 2,
      .bucket_bytes = 1 << 18};
  EXPECT_EQ(problem_of(training, GetParam().layout), "");
}

TEST_P(ShardedImageParity, TwentyStepsOfSimpleCnnEqualOneDevice) {
  torch::manual_seed(21);
  const ParityTraining training{
      .make_net = [](NetPlace& place) -> ParityNet {
        const SimpleCnnOptions options{.num_classes = 3, .image_size = 8};
        return std::make_shared<ModelNet<SimpleCnn>>(SimpleCnn(options, parts_for(place)));
      },
      .data = {torch::randn({13, 1, 8, 8}, torch::kDouble), torch::randint(0, 3, {13})},
      .optimizers = {"fused_adam", "sgd"},
      .micro_batches = 2,
      .clip_norm = 1.0,
      .bucket_bytes = 1 << 14};
  EXPECT_EQ(problem_of(training, GetParam().layout), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShardedImageParity, testing::ValuesIn(image_ranks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep
