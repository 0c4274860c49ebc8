#include "lockstep/training/planning/planned_record.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/layouts/layout_planner.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/module_recorder.h"

namespace lockstep {
namespace {

PartWrapper recording(ModuleRecorder& recorder) {
  return [&recorder](const ModelPart& part) {
    return WrappedPart{part.module, [&recorder, name = part.name](const auto& function, const auto& x) {
                         return recorder.call(name, function, x);
                       }};
  };
}

template <typename Model>
RecordedStep record_of_images(const std::vector<int64_t>& shape, ModuleRecorder& recorder, Model& model) {
  return recorder.record(
      *model,
      [&](int64_t examples) {
        std::vector<int64_t> sizes{examples};
        sizes.insert(sizes.end(), shape.begin(), shape.end());
        return std::vector{torch::rand(sizes), torch::randint(10, {examples})};
      },
      [&](const std::vector<torch::Tensor>& batch) {
        return torch::cross_entropy_loss(model->forward(batch[0]), batch[1]);
      });
}

RecordedStep recorded_cnn() {
  at::set_num_threads(1);
  ModuleRecorder recorder({.fewer_examples = 8, .more_examples = 16});
  SimpleCnn model(SimpleCnnOptions{}, recording(recorder));
  return record_of_images({1, 28, 28}, recorder, model);
}

RecordedStep recorded_mobilenet() {
  at::set_num_threads(1);
  ModuleRecorder recorder({.fewer_examples = 4, .more_examples = 8});
  MobileNetV2 model(MobileNetV2Options{.num_classes = 10, .width_multiplier = 0.5}, recording(recorder));
  return record_of_images({3, 48, 48}, recorder, model);
}

void expect_the_memory_of(const RecordedStep& record, int64_t examples) {
  for (const int64_t replicas : {1, 2}) {
    for (int stage = 0; stage <= (replicas > 1 ? 3 : 0); ++stage) {
      for (const int64_t micro_batches : {1, 3}) {
        const double expected = static_cast<double>(
            plan_memory(
                record,
                {.replicas = replicas, .stage = stage, .examples = examples, .micro_batches = micro_batches})
                .peak());
        PlannedLayout layout{.stage = stage, .micro_batches = micro_batches};
        (stage == 0 ? layout.data : layout.shard) = replicas;
        const LayoutPlanner planner(
            planned_model(record),
            {.devices = replicas, .devices_per_machine = replicas, .shares_units = true},
            {.global_batch = examples * replicas * micro_batches});
        const double planned = planner.memory(layout).peak();
        EXPECT_GT(planned, 0.95 * expected) << layout.mesh() << ", stage " << stage << ", " << micro_batches;
        EXPECT_LT(planned, 1.2 * expected) << layout.mesh() << ", stage " << stage << ", " << micro_batches;
      }
    }
  }
}

TEST(PlannedRecord, NeedsTheMemoryOfTheRecordedStep) {
  expect_the_memory_of(recorded_cnn(), 64);
  expect_the_memory_of(recorded_mobilenet(), 24);
}

TEST(PlannedRecord, HasAllParametersAndOperations) {
  for (const auto& record : {recorded_cnn(), recorded_mobilenet()}) {
    const auto model = planned_model(record);
    double elements = 0;
    for (const auto& parameter : record.parameters) elements += static_cast<double>(parameter.elements);
    EXPECT_EQ(model.elements(), elements);
    double flops = 0;
    for (const auto& part : model.kinds) flops += part.forward.flops.sum() + part.backward.flops.sum();
    EXPECT_DOUBLE_EQ(flops, record.flops(5) - record.flops(4));
    EXPECT_EQ(model.parts.size(), record.blocks.size());
  }
}

TEST(PlannedRecord, KeepsLessWithRecomputation) {
  const auto record = recorded_mobilenet();
  std::vector<size_t> all;
  for (size_t block = 0; block < record.blocks.size(); ++block) all.push_back(block);
  const LayoutPlanner planner(planned_model(record, all), {.devices = 1}, {.global_batch = 32});
  const double kept = planner.memory({}).activations;
  const double recomputed = planner.memory({.recomputes = true}).activations;
  EXPECT_LT(recomputed, 0.7 * kept);
  const double expected =
      static_cast<double>(plan_memory(record, {.examples = 32, .recomputed = all}).activations);
  EXPECT_NEAR(recomputed / expected, 1, 0.15);
}

TEST(PlannedRecord, RefusesWhatItCannotPlan) {
  EXPECT_THROW(planned_model(RecordedStep{}), InvalidArgument);
  RecordedStep record{.parameters = {{.name = "frozen", .elements = 1, .is_trained = false}},
                      .blocks = {"block"}};
  EXPECT_THROW(planned_model(record), InvalidArgument);
  record.parameters.clear();
  EXPECT_THROW(planned_model(record, {1}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
