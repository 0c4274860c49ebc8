#include "lockstep/benchmarks/planning/planned_training.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/planning/module_recorder.h"

namespace lockstep::benchmarks {
namespace {

using Batch = std::vector<torch::Tensor>;
using Model = std::shared_ptr<torch::nn::Module>;

constexpr int64_t kClasses = 10;

GptOptions gpt_options(const PlannedTraining& training) {
  return {.vocabulary_size = training.vocabulary,
          .max_length = training.size,
          .num_layers = training.layers,
          .num_heads = 4,
          .width = training.width,
          .has_tied_head = training.has_tied_head};
}

Model make_model(const PlannedTraining& training, const PartWrapper& wrap) {
  switch (training.model) {
    case PlannedModel::kGpt:
      return Gpt(gpt_options(training), wrap).ptr();
    case PlannedModel::kMobileNet:
      return MobileNetV2(MobileNetV2Options{.num_classes = kClasses,
                                            .width_multiplier = static_cast<double>(training.width) / 100,
                                            .image_size = training.size},
                         wrap)
          .ptr();
    case PlannedModel::kSimpleCnn:
      return SimpleCnn(SimpleCnnOptions{.num_classes = kClasses, .image_size = training.size}, wrap).ptr();
  }
  return nullptr;
}

Batch make_batch(const PlannedTraining& training, int64_t examples) {
  if (training.model == PlannedModel::kGpt) {
    const auto tokens = [&] {
      return torch::randint(training.vocabulary, {examples, training.size}, torch::kLong);
    };
    return {tokens(), tokens()};
  }
  const int64_t channels = training.model == PlannedModel::kMobileNet ? 3 : 1;
  return {torch::rand({examples, channels, training.size, training.size}),
          torch::randint(kClasses, {examples}, torch::kLong)};
}

/// Of each example.
torch::Tensor losses_of(torch::nn::Module& model, const Batch& batch) {
  if (auto* gpt = dynamic_cast<GptImpl*>(&model)) return gpt->losses(batch[0], batch[1]).mean(1);
  if (auto* net = dynamic_cast<MobileNetV2Impl*>(&model))
    return cross_entropy(net->forward(batch[0]), batch[1]);
  return cross_entropy(dynamic_cast<SimpleCnnImpl&>(model).forward(batch[0]), batch[1]);
}

/// The blocks that are computed again begin with it: the layers of a Gpt, and all blocks of an image model
/// but the last.
std::string recomputed_prefix(PlannedModel model) {
  if (model == PlannedModel::kGpt) return "blocks.";
  return model == PlannedModel::kMobileNet ? "features." : "convolution";
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(PlannedOptimizer kind,
                                                        const std::vector<torch::Tensor>& parameters) {
  constexpr double kRate = 1e-4, kMomentum = 0.9;
  switch (kind) {
    case PlannedOptimizer::kSgd:
      return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(kRate));
    case PlannedOptimizer::kMomentum:
      return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(kRate).momentum(kMomentum));
    case PlannedOptimizer::kAdam:
      return std::make_unique<FusedAdam>(parameters, FusedAdamOptions(kRate));
    case PlannedOptimizer::kAdamW:
      return std::make_unique<FusedAdamW>(parameters, FusedAdamWOptions(kRate));
  }
  return nullptr;
}

/// Makes parts units, and calls them by recompute(), as the layout says.
PartWrapper wrapper_of(const PlannedTraining& training, ReplicaContext& replica) {
  const bool has_units = training.layout.stage == 3;
  if (!has_units && !training.recomputes) return {};
  return [&training, &replica, has_units](const ModelPart& part) -> WrappedPart {
    using Call = std::function<torch::Tensor(const PartFunction&, const torch::Tensor&)>;
    Model module = part.module;
    Call call = [](const PartFunction& function, const torch::Tensor& x) { return function(x); };
    if (has_units && !module->parameters().empty()) {
      UnitOptions options = along(replica.axis("data"));
      options.overlap = training.layout.overlaps_units;
      const auto unit = std::make_shared<ShardedModule>(part.module, options);
      module = unit;
      call = [unit](const PartFunction& function, const torch::Tensor& x) { return unit->call(function, x); };
    }
    const bool is_again = training.recomputes && part.name.starts_with(recomputed_prefix(training.model));
    if (!is_again) return {module, call};
    return {module, [call](const PartFunction& function, const torch::Tensor& x) {
              return recompute([call, function](const torch::Tensor& in) { return call(function, in); }, x);
            }};
  };
}

/// Lets this thread's operators use one thread.
class OneThreadGuard {
 public:
  OneThreadGuard() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThreadGuard() { at::set_num_threads(before_); }
  OneThreadGuard(const OneThreadGuard&) = delete;
  OneThreadGuard& operator=(const OneThreadGuard&) = delete;

 private:
  int before_;
};

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

}  // namespace

RecordedStep record_of(const PlannedTraining& training) {
  const OneThreadGuard one_thread;
  ModuleRecorder recorder;
  const auto model = make_model(training, [&recorder](const ModelPart& part) {
    return WrappedPart{part.module, [&recorder, name = part.name](const auto& function, const auto& x) {
                         return recorder.call(name, function, x);
                       }};
  });
  return recorder.record(
      *model, [&](int64_t examples) { return make_batch(training, examples); },
      [&](const Batch& batch) { return losses_of(*model, batch).mean(); });
}

TrainingLayout layout_of(const PlannedTraining& training, const RecordedStep& record) {
  TrainingLayout layout = training.layout;
  if (training.recomputes) layout.recomputed = record.blocks_named(recomputed_prefix(training.model));
  return layout;
}

int64_t measured_peak(const PlannedTraining& training) {
  constexpr int kFirstSteps = 2, kMeasuredSteps = 3, kStepsOfUnits = 12;
  constexpr std::chrono::seconds kTimeOfUnits{2};
  const TrainingLayout& layout = training.layout;
  // Replicas share the memory of units, so that only all of them together can be counted, while they need
  // most at moments that differ from step to step.
  const bool has_units = layout.stage == 3 && layout.replicas > 1;
  const int64_t before = measurement::counted_bytes();
  std::vector<std::shared_ptr<measurement::TensorAccount>> accounts;
  for (int64_t i = 0; i < layout.replicas; ++i)
    accounts.push_back(std::make_shared<measurement::TensorAccount>());
  const auto account_of = [&](const ReplicaContext& replica) {
    return accounts[static_cast<size_t>(replica.replica_id())];
  };
  MirroredStrategy strategy(cpu_devices(static_cast<int>(layout.replicas)),
                            {.intra_op_threads = 1,
                             .seed = 1,
                             .sharding = {.stage = layout.stage < 3 ? layout.stage : 0},
                             .buckets = layout.buckets});
  auto models = strategy.scope([&](ReplicaContext& replica) {
    const measurement::TensorAccountGuard guard(account_of(replica));
    return make_model(training, wrapper_of(training, replica));
  });
  auto optimizers = strategy.scope([&](ReplicaContext& replica) {
    return make_optimizer(layout.optimizer, models[replica]->parameters());
  });
  const auto step = [&](ReplicaContext& replica, Model& model,
                        std::unique_ptr<torch::optim::Optimizer>& optimizer) {
    const measurement::TensorAccountGuard guard(account_of(replica));
    optimizer->zero_grad();
    const int64_t all = layout.examples * layout.micro_batches * layout.replicas;
    const auto go = [&] {
      const Batch batch = make_batch(training, layout.examples);
      const auto loss = compute_average_loss(replica, losses_of(*model, batch), {.global_batch_size = all});
      // All begin backward at once.
      if (has_units) replica.all_reduce(ReduceOp::kSum, loss.detach());
      loss.backward();
    };
    for (int64_t i = 1; i < layout.micro_batches; ++i) {
      const auto hold = replica.accumulate();
      go();
    }
    go();
    replica.apply_gradients(*optimizer);
  };
  for (int i = 0; i < kFirstSteps; ++i) strategy.run(step, models, optimizers);
  int64_t most = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto is_done = [&](int steps) {
    if (!has_units) return steps == kMeasuredSteps;
    return steps >= kStepsOfUnits && std::chrono::steady_clock::now() - begin > kTimeOfUnits;
  };
  for (int steps = 0; !is_done(steps); ++steps) {
    // The strategy's own memory is in no account.
    int64_t peaks = measurement::counted_bytes() - before;
    for (const auto& account : accounts) {
      peaks -= account->bytes();
      account->restart_peak();
    }
    measurement::restart_counted_peak();
    strategy.run(step, models, optimizers);
    for (const auto& account : accounts) peaks += account->peak();
    most = std::max(most, measurement::counted_peak() - before);
    if (!has_units) most = std::max(most, peaks);
  }
  return most / layout.replicas;
}

PlannedTraining random_training(uint64_t number) {
  std::mt19937_64 random(number);
  // Not a distribution: those differ between libraries.
  const auto one_of = [&]<typename T>(std::initializer_list<T> values) {
    return *(values.begin() + random() % values.size());
  };
  PlannedTraining training{
      .model = one_of({PlannedModel::kGpt, PlannedModel::kMobileNet, PlannedModel::kSimpleCnn})};
  switch (training.model) {
    case PlannedModel::kGpt:
      training.layers = one_of({2, 3, 5});
      training.width = one_of({64, 128, 192});
      training.size = one_of({48, 64, 128});
      training.vocabulary = one_of({256, 1000});
      training.has_tied_head = one_of({false, true});
      break;
    case PlannedModel::kMobileNet:
      training.width = one_of({50, 100});
      training.size = one_of({48, 64});
      break;
    case PlannedModel::kSimpleCnn:
      training.size = one_of({20, 28, 32});
      break;
  }
  TrainingLayout& layout = training.layout;
  layout.replicas = one_of({1, 2});
  layout.stage = one_of({0, 1, 2, 3});
  layout.examples = training.model == PlannedModel::kSimpleCnn ? one_of({16, 48, 96}) : one_of({6, 12, 16});
  layout.micro_batches = one_of({1, 1, 2, 3});
  layout.optimizer = one_of({PlannedOptimizer::kSgd, PlannedOptimizer::kMomentum, PlannedOptimizer::kAdam,
                             PlannedOptimizer::kAdamW});
  training.recomputes = one_of({false, true});
  return training;
}

std::string text_of(const PlannedTraining& training) {
  std::string text;
  switch (training.model) {
    case PlannedModel::kGpt:
      text = c10::str("Gpt of ", training.layers, " x ", training.width, ", ", training.size, " tokens",
                      training.has_tied_head ? ", tied" : "");
      break;
    case PlannedModel::kMobileNet:
      text = c10::str("MobileNetV2 x ", static_cast<double>(training.width) / 100, ", ", training.size,
                      " pixels");
      break;
    case PlannedModel::kSimpleCnn:
      text = c10::str("SimpleCnn, ", training.size, " pixels");
      break;
  }
  const auto& layout = training.layout;
  return c10::str(text, "; ", layout.replicas, layout.replicas == 1 ? " replica" : " replicas", ", stage ",
                  layout.stage, ", ", layout.micro_batches, " x ", layout.examples, " examples, ",
                  name_of(layout.optimizer), training.recomputes ? ", recomputation" : "");
}

}  // namespace lockstep::benchmarks
