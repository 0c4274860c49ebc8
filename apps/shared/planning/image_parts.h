#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/training/layouts/layout_planner.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep::apps {

/// A model of images as train_images trains it.
struct PlannedImageModel {
  std::variant<MobileNetV2Options, SimpleCnnOptions> options;
  int64_t image_size = 64;  ///< height and width in pixels
  PlannedNumbers numbers = PlannedNumbers::kFloat32;
  PlannedOptimizer optimizer = PlannedOptimizer::kAdam;
};

/// Whether records have the two halves of backward, which the schedules zb-h1 and zb-v need.
enum class RecordedPasses : uint8_t { kWhole, kWithHalves };

/// Records forward and backward of the model with a few images on the CPU, with one thread inside of
/// operators. It takes as long as to train on 12 images, or on 3 of 128 pixels and more; with halves, three
/// times as long. The global random generator is afterwards as it was before.
RecordedStep record_image_model(const PlannedImageModel& model,
                                RecordedPasses passes = RecordedPasses::kWithHalves);

/// Returns bytes that a replica of so many images in a step, or a stage of it, never needs as many as,
/// whatever the layout. It is a closed formula, which takes no time: at least twice the memory of any plan.
double most_image_memory(const PlannedImageModel& model, int64_t examples);

/// Returns the costs of the model's blocks by which train_images cuts it into stages: multiplications of an
/// image.
std::vector<double> stage_costs_of(const PlannedImageModel& model);

/// Returns a planner of the recorded model: its time by planned_model(), and its memory by
/// recorded_memory().
LayoutPlanner image_planner(const PlannedImageModel& model, const PlannedCluster& cluster,
                            int64_t global_batch, RecordedPasses passes = RecordedPasses::kWithHalves);

/// Returns the values that the optimizer keeps for each element of a parameter.
int64_t states_of(PlannedOptimizer optimizer);

}  // namespace lockstep::apps
