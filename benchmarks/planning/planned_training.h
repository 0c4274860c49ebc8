#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep::benchmarks {

enum class PlannedModel : uint8_t { kGpt, kMobileNet, kSimpleCnn };

/// A model and how it is trained.
struct PlannedTraining {
  PlannedModel model = PlannedModel::kGpt;
  int64_t layers = 2;          ///< of a Gpt
  int64_t width = 64;          ///< of a Gpt; of a MobileNetV2, its channels in percent
  int64_t size = 64;           ///< tokens of a sequence, or pixels of an image's side
  int64_t vocabulary = 256;    ///< of a Gpt
  bool has_tied_head = false;  ///< of a Gpt
  bool recomputes = false;     ///< all blocks of the same kind: see recomputed_blocks()
  TrainingLayout layout{};     ///< without the blocks to recompute
};

/// Records a step of the model, with one thread inside of operators.
RecordedStep record_of(const PlannedTraining& training);

/// Returns the layout with the blocks of `record` that are computed again.
TrainingLayout layout_of(const PlannedTraining& training, const RecordedStep& record);

/// Trains for a few steps, and returns the most bytes of tensors in the last ones, as a mean over the
/// replicas. In stages 0 to 2, each replica's most counts, since they need it at different moments; in stage
/// 3, the most of all replicas together. Needs measurement::count_cpu_tensors().
int64_t measured_peak(const PlannedTraining& training);

/// Returns a training that depends on the number only.
PlannedTraining random_training(uint64_t number);

/// Returns its model and layout in words.
std::string text_of(const PlannedTraining& training);

}  // namespace lockstep::benchmarks
