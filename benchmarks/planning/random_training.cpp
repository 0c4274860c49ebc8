// Random trainings, and how tables name them.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <initializer_list>
#include <random>

#include "lockstep/benchmarks/planning/planned_training.h"

namespace lockstep::benchmarks {
namespace {

/// Draws values. Not by distributions: those differ between libraries.
class Draw {
 public:
  explicit Draw(uint64_t number) : random_(number) {}
  template <typename T>
  T operator()(std::initializer_list<T> values) {
    return *(values.begin() + random_() % values.size());
  }

 private:
  std::mt19937_64 random_;
};

/// The axes of a mesh and what runs along them.
enum class MeshKind : uint8_t { kData, kStages, kStagesOfParts, kParts, kTokens, kExperts, kProcesses };

bool is_for_gpt(MeshKind kind) {
  return kind == MeshKind::kStagesOfParts || kind == MeshKind::kParts || kind == MeshKind::kTokens ||
         kind == MeshKind::kExperts;
}

void draw_model(PlannedTraining& training, Draw& draw) {
  switch (training.model) {
    case PlannedModel::kGpt:
      training.layers = draw({2, 3, 5});
      training.width = draw({64, 128, 192});
      training.size = draw({48, 64, 128});
      training.vocabulary = draw({256, 1000});
      training.has_tied_head = draw({false, true});
      break;
    case PlannedModel::kMobileNet:
      training.width = draw({50, 100});
      training.size = draw({48, 64});
      break;
    case PlannedModel::kSimpleCnn:
      training.size = draw({20, 28, 32});
      break;
  }
}

/// CPUs without instructions for bfloat16 multiply it slowly.
void make_quick(PlannedTraining& training) {
  const bool is_gpt = training.model == PlannedModel::kGpt;
  training.width = std::min<int64_t>(training.width, is_gpt ? 128 : 50);
  training.size = std::min<int64_t>(training.size, is_gpt ? 64 : 48);
  if (is_gpt) training.layout.examples = std::min<int64_t>(training.layout.examples, 12);
}

void draw_stages(PlannedTraining& training, Draw& draw) {
  auto& layout = training.layout;
  layout.pipeline.ranks = 2;
  // A SimpleCnn has fewer blocks than two ranks with two stages each.
  layout.pipeline.schedule = training.model == PlannedModel::kSimpleCnn
                                 ? draw({"gpipe", "1f1b", "zb-h1"})
                                 : draw({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"});
  layout.micro_batches = draw({2, 4, 6});
  layout.replicas = draw({1, 2});
  layout.stage = draw({0, 1, 2});
}

void draw_mesh(PlannedTraining& training, MeshKind kind, Draw& draw) {
  auto& layout = training.layout;
  layout.micro_batches = draw({1, 1, 2, 3});
  layout.replicas = draw({1, 2});
  layout.stage = draw({0, 1, 2, 3});
  switch (kind) {
    case MeshKind::kData:
      break;
    case MeshKind::kStages:
      return draw_stages(training, draw);
    case MeshKind::kStagesOfParts:
      training.tensor = 2;
      draw_stages(training, draw);
      layout.replicas = 1;
      break;
    case MeshKind::kParts:
      training.tensor = draw({2, 4 / static_cast<int>(layout.replicas)});
      training.shards_sequence = draw({false, true});
      break;
    case MeshKind::kTokens:
      training.context = 2;
      training.width = std::min<int64_t>(training.width, 128);  // see record_of_ranks()
      break;
    case MeshKind::kExperts:
      layout.replicas = 2;
      layout.stage = 0;
      training.shares_experts = true;
      training.experts = draw({4, 8});
      break;
    case MeshKind::kProcesses:
      layout.replicas = 2;
      training.uses_processes = true;
      break;
  }
}

std::string name_of_model(const PlannedTraining& training) {
  switch (training.model) {
    case PlannedModel::kGpt:
      return c10::str("Gpt of ", training.layers, " x ", training.width, ", ", training.size, " tokens",
                      training.experts > 0 ? c10::str(", ", training.experts, " experts") : "",
                      training.has_tied_head ? ", tied" : "");
    case PlannedModel::kMobileNet:
      return c10::str("MobileNetV2 x ", static_cast<double>(training.width) / 100, ", ", training.size,
                      " pixels");
    case PlannedModel::kSimpleCnn:
      return c10::str("SimpleCnn, ", training.size, " pixels");
  }
  return "";
}

const char* name_of(PlannedOptimizer optimizer) {
  switch (optimizer) {
    case PlannedOptimizer::kSgd:
      return "SGD";
    case PlannedOptimizer::kMomentum:
      return "SGD with momentum";
    case PlannedOptimizer::kAdam:
      return "Adam";
    case PlannedOptimizer::kAdamW:
      return "AdamW";
  }
  return "";
}

std::string name_of_mesh(const PlannedTraining& training) {
  const auto& layout = training.layout;
  std::string mesh = c10::str(training.shares_experts   ? "expert="
                              : training.uses_processes ? "processes="
                                                        : "data=",
                              layout.replicas);
  const auto add = [&](const char* axis, int64_t size) {
    if (size > 1) mesh += c10::str(",", axis, "=", size);
  };
  add("pipeline", layout.pipeline.ranks);
  add("context", training.context);
  add("tensor", training.tensor);
  if (training.shards_sequence) mesh += " with shards of sequences";
  if (layout.pipeline.ranks > 1) mesh += ", " + layout.pipeline.schedule;
  return mesh;
}

}  // namespace

PlannedTraining random_training(uint64_t number) {
  Draw draw(number);
  const auto kind = draw({MeshKind::kData, MeshKind::kData, MeshKind::kStages, MeshKind::kStages,
                          MeshKind::kStages, MeshKind::kStagesOfParts, MeshKind::kParts, MeshKind::kTokens,
                          MeshKind::kExperts, MeshKind::kProcesses});
  PlannedTraining training{.model = is_for_gpt(kind) ? PlannedModel::kGpt
                                                     : draw({PlannedModel::kGpt, PlannedModel::kMobileNet,
                                                             PlannedModel::kSimpleCnn})};
  draw_model(training, draw);
  TrainingLayout& layout = training.layout;
  layout.examples = training.model == PlannedModel::kSimpleCnn ? draw({16, 48, 96}) : draw({6, 12, 16});
  draw_mesh(training, kind, draw);
  layout.optimizer = draw({PlannedOptimizer::kSgd, PlannedOptimizer::kMomentum, PlannedOptimizer::kAdam,
                           PlannedOptimizer::kAdamW});
  training.recomputes = draw({false, true});
  training.is_bfloat16 = draw({false, false, true});
  if (training.is_bfloat16) make_quick(training);
  return training;
}

std::string text_of(const PlannedTraining& training) {
  const auto& layout = training.layout;
  return c10::str(name_of_model(training), "; ", name_of_mesh(training), ", stage ", layout.stage, ", ",
                  layout.micro_batches, " x ", layout.examples, " examples, ", name_of(layout.optimizer),
                  training.is_bfloat16 ? ", bfloat16" : "", training.recomputes ? ", recomputation" : "");
}

}  // namespace lockstep::benchmarks
