#include "lockstep/apps/shared/planning/image_parts.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/training/planning/module_recorder.h"
#include "lockstep/training/planning/planned_record.h"
#include "lockstep/training/planning/recorded_memory.h"

namespace lockstep::apps {
namespace {

/// Leaves the global generator of the CPU as it was, so that a training draws the same numbers with and
/// without a plan.
class GeneratorStateGuard {
 public:
  GeneratorStateGuard() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~GeneratorStateGuard() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  GeneratorStateGuard(const GeneratorStateGuard&) = delete;
  GeneratorStateGuard& operator=(const GeneratorStateGuard&) = delete;

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

/// Large images take long, and are the same to operators when they are few.
ModuleRecorderOptions recorder_options(int64_t image_size, RecordedPasses passes) {
  constexpr int64_t kLarge = 128;
  const int64_t fewer = image_size < kLarge ? 4 : 1;
  return {.fewer_examples = fewer,
          .more_examples = 2 * fewer,
          .records_halves = passes == RecordedPasses::kWithHalves};
}

template <typename Model, typename Options>
RecordedStep record_model(const PlannedImageModel& given, const Options& options, RecordedPasses passes) {
  ModuleRecorder recorder(recorder_options(given.image_size, passes));
  Model model(options, [&recorder](const ModelPart& part) {
    return WrappedPart{part.module, [&recorder, name = part.name](const auto& function, const auto& x) {
                         return recorder.call(name, function, x);
                       }};
  });
  const auto dtype = given.numbers == PlannedNumbers::kFloat64 ? torch::kDouble : torch::kFloat;
  model->to(dtype);
  return recorder.record(
      *model,
      [&](int64_t examples) {
        return std::vector{
            torch::rand({examples, options.in_channels, given.image_size, given.image_size}, dtype),
            torch::randint(options.num_classes, {examples})};
      },
      [&](const std::vector<torch::Tensor>& batch) {
        std::optional<AutocastGuard> autocast;
        if (given.numbers == PlannedNumbers::kMixed) autocast.emplace(torch::kCPU, torch::kBFloat16);
        const auto logits = model->forward(batch[0]);
        return torch::cross_entropy_loss(logits, batch[1], {}, at::Reduction::None).mean();
      });
}

}  // namespace

RecordedStep record_image_model(const PlannedImageModel& model, RecordedPasses passes) {
  const GeneratorStateGuard guard;
  // In a thread of its own, whose operators have one thread as those of most replicas.
  return std::async(std::launch::async,
                    [&] {
                      at::set_num_threads(1);
                      if (const auto* mobilenet = std::get_if<MobileNetV2Options>(&model.options))
                        return record_model<MobileNetV2>(model, *mobilenet, passes);
                      return record_model<SimpleCnn>(model, std::get<SimpleCnnOptions>(model.options),
                                                     passes);
                    })
      .get();
}

std::vector<double> stage_costs_of(const PlannedImageModel& model) {
  if (const auto* mobilenet = std::get_if<MobileNetV2Options>(&model.options))
    return mobilenet_v2_costs(*mobilenet, model.image_size);
  return simple_cnn_costs(std::get<SimpleCnnOptions>(model.options));
}

double most_image_memory(const PlannedImageModel& model, int64_t examples) {
  // Neither model keeps a fourth as many values for each pixel. Weights are multiplied at least once for each
  // image, so there are no more of them than multiplications; each has a gradient, a bucket, two states, and
  // copies on their way. Biases and norms have values for each image, too.
  constexpr double kValuesOfPixel = 2048, kValuesOfWeight = 8;
  double width = 1;
  if (const auto* mobilenet = std::get_if<MobileNetV2Options>(&model.options))
    width = std::max(width, mobilenet->width_multiplier);
  const auto costs = stage_costs_of(model);
  const double weights = std::accumulate(costs.begin(), costs.end(), 0.0);
  const auto pixels = static_cast<double>(examples * model.image_size * model.image_size);
  return static_cast<double>(parameter_bytes(model.numbers)) *
         (kValuesOfPixel * width * pixels + kValuesOfWeight * weights);
}

int64_t states_of(PlannedOptimizer optimizer) {
  switch (optimizer) {
    case PlannedOptimizer::kSgd:
      return 0;
    case PlannedOptimizer::kMomentum:
      return 1;
    case PlannedOptimizer::kAdam:
    case PlannedOptimizer::kAdamW:
      break;
  }
  return 2;
}

LayoutPlanner image_planner(const PlannedImageModel& model, const PlannedCluster& cluster,
                            int64_t global_batch, RecordedPasses passes) {
  RecordedStep record = record_image_model(model, passes);
  PlannedModel parts = planned_model(record);
  const auto costs = stage_costs_of(model);
  for (size_t i = 0; i < costs.size(); ++i) parts.kinds[i].stage_cost = costs[i];
  const PlannedTraining training{.global_batch = global_batch,
                                 .parameter_bytes = parameter_bytes(model.numbers),
                                 .optimizer_states = states_of(model.optimizer)};
  auto memory = recorded_memory(std::move(record), cluster, training,
                                {.optimizer = model.optimizer, .stage_costs = costs});
  return LayoutPlanner(std::move(parts), cluster, training, std::move(memory));
}

}  // namespace lockstep::apps
