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
  int64_t experts = 0;         ///< of each layer of a Gpt
  bool recomputes = false;     ///< all blocks of the same kind: see recomputed_blocks()
  bool is_bfloat16 = false;    ///< whether forward runs under autocast
  /// Ranks along axes of the mesh, besides the layout's.
  int tensor = 1;
  bool shards_sequence = false;  ///< along the tensor axis
  int context = 1;
  bool shares_experts = false;  ///< among the layout's replicas, along the axis "expert"
  bool uses_processes = false;  ///< each replica is a process
  TrainingLayout layout{};      ///< without what depends on a record: see layout_of()
};

/// Returns the number of ranks of all axes.
int64_t num_ranks(const PlannedTraining& training);

/// Records a step of the model on one rank of its cut axes, with one thread inside of operators.
RecordedStep record_of(const PlannedTraining& training);

/// Returns the layout with the blocks of `record` that are computed again, or with which stages begin.
TrainingLayout layout_of(const PlannedTraining& training, const RecordedStep& record);

/// Trains for a few steps, and returns the most bytes of tensors in the last ones, of each rank along the
/// axis of stages as a mean over the ranks that do the same. In stages 0 to 2, each rank's most counts, since
/// they need it at different moments; in stage 3, the most of all ranks together. Needs
/// measurement::count_cpu_tensors(). If replicas are processes, this process is one of them.
std::vector<int64_t> measured_peaks(const PlannedTraining& training);

/// Returns a training that depends on the number only.
PlannedTraining random_training(uint64_t number);

/// Returns its model and layout in words.
std::string text_of(const PlannedTraining& training);

}  // namespace lockstep::benchmarks
