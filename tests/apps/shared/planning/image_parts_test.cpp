#include "lockstep/apps/shared/planning/image_parts.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/training/layouts/layout_search.h"
#include "lockstep/training/planning/memory_plan.h"

namespace lockstep::apps {
namespace {

struct PlannedImageCase {
  std::string name;
  PlannedImageModel model;
};

const std::vector<PlannedImageCase>& image_cases() {
  static const std::vector<PlannedImageCase> cases{
      {"SimpleCnn", {.options = SimpleCnnOptions{}, .image_size = 28}},
      {"SimpleCnnSgd",
       {.options = SimpleCnnOptions{.num_classes = 100, .image_size = 40},
        .image_size = 40,
        .optimizer = PlannedOptimizer::kSgd}},
      {"MobileNetV2", {.options = MobileNetV2Options{.num_classes = 10}}},
      {"MobileNetV2Flattened",
       {.options =
            MobileNetV2Options{.num_classes = 20, .head = MobileNetV2Head::kFlattenedDense, .image_size = 48},
        .image_size = 48,
        .optimizer = PlannedOptimizer::kMomentum}},
      {"SimpleCnnFloat64",
       {.options = SimpleCnnOptions{}, .image_size = 28, .numbers = PlannedNumbers::kFloat64}},
      {"SimpleCnnBFloat16",
       {.options = SimpleCnnOptions{}, .image_size = 28, .numbers = PlannedNumbers::kMixed}}};
  return cases;
}

int64_t elements_of(const PlannedImageModel& model) {
  const auto count = [](const torch::nn::Module& module) {
    int64_t sum = 0;
    for (const auto& parameter : module.parameters()) sum += parameter.numel();
    return sum;
  };
  if (const auto* mobilenet = std::get_if<MobileNetV2Options>(&model.options))
    return count(*MobileNetV2(*mobilenet));
  return count(*SimpleCnn(std::get<SimpleCnnOptions>(model.options)));
}

class ImagePartsTest : public testing::TestWithParam<size_t> {
 protected:
  const PlannedImageModel& model() const { return image_cases()[GetParam()].model; }
};

TEST_P(ImagePartsTest, HaveTheParametersAndMultiplicationsOfTheModel) {
  const auto planner = image_planner(model(), {}, 8);
  EXPECT_EQ(planner.model().elements(), static_cast<double>(elements_of(model())));
  double forward = 0;
  for (const auto& part : planner.model().kinds) forward += part.forward.flops.sum();
  const auto costs = stage_costs_of(model());
  ASSERT_EQ(costs.size(), planner.model().parts.size());
  const double multiplications = std::accumulate(costs.begin(), costs.end(), 0.0);
  EXPECT_NEAR(forward / (2 * multiplications), 1, 1e-6);
}

TEST_P(ImagePartsTest, NeedTheMemoryThatThePlanOfTheRecordHas) {
  const RecordedStep record = record_image_model(model());
  constexpr int64_t kExamples = 12;
  for (const int64_t devices : {1, 4}) {
    const PlannedCluster cluster{.devices = devices, .devices_per_machine = devices, .shares_units = true};
    const auto planner = image_planner(model(), cluster, kExamples * devices);
    const LayoutChoices choices{.schedules = {"1f1b", "gpipe"}, .with_recomputation = false};
    for_each_layout(planner, choices, [&](const PlannedLayout& layout) {
      TrainingLayout expected{.replicas = layout.stage > 0 ? layout.shard : layout.data,
                              .copies = layout.stage > 0 ? layout.data : 1,
                              .stage = layout.stage,
                              .micro_batches = layout.micro_batches,
                              .optimizer = model().optimizer,
                              .buckets = kDefaultBuckets};
      const int64_t of_replica = (kExamples * devices + layout.replicas() - 1) / layout.replicas();
      expected.examples = (of_replica + layout.micro_batches - 1) / layout.micro_batches;
      expected.pipeline = {.ranks = static_cast<int>(layout.pipeline),
                           .schedule = layout.schedule,
                           .costs = stage_costs_of(model())};
      const auto plan = plan_memory(record, expected).peak();
      EXPECT_EQ(planner.memory(layout).peak(), static_cast<double>(plan))
          << layout.mesh() << ", stage " << layout.stage << ", " << layout.micro_batches << " micro-batches";
      // The search relies on it.
      EXPECT_NEAR(planner.estimated_memory(layout).peak() / static_cast<double>(plan), 1.1, 0.39)
          << layout.mesh() << ", stage " << layout.stage << ", " << layout.micro_batches << " micro-batches";
    });
  }
}

TEST_P(ImagePartsTest, NeedLessThanHalfOfWhatTheFormulaAllows) {
  const RecordedStep record = record_image_model(model(), RecordedPasses::kWhole);
  for (const int64_t examples : {1, 3, 64}) {
    for (const int64_t replicas : {1, 4}) {
      const TrainingLayout layout{.replicas = replicas,
                                  .examples = examples,
                                  .optimizer = PlannedOptimizer::kAdamW,
                                  .buckets = kDefaultBuckets};
      EXPECT_LT(2 * static_cast<double>(plan_memory(record, layout).peak()),
                most_image_memory(model(), examples))
          << examples << " images on each of " << replicas;
    }
  }
}

TEST(RecordedImages, LeaveTheRandomNumbersOfATraining) {
  torch::manual_seed(7);
  const auto expected = torch::rand({8});
  torch::manual_seed(7);
  record_image_model({.options = SimpleCnnOptions{}, .image_size = 28});
  EXPECT_TRUE(torch::equal(torch::rand({8}), expected));
}

TEST(RecordedImages, NeedHalfTheActivationsUnderAutocast) {
  // Of an image, without the weights that are cast.
  const auto kept = [](PlannedNumbers numbers) {
    const auto record =
        record_image_model({.options = SimpleCnnOptions{}, .image_size = 28, .numbers = numbers});
    return static_cast<double>(record.saved_bytes(65) - record.saved_bytes(64));
  };
  EXPECT_LT(kept(PlannedNumbers::kMixed), 0.75 * kept(PlannedNumbers::kFloat32));
}

INSTANTIATE_TEST_SUITE_P(Images, ImagePartsTest, testing::Range(size_t{0}, image_cases().size()),
                         [](const auto& test) { return image_cases()[test.param].name; });

}  // namespace
}  // namespace lockstep::apps
