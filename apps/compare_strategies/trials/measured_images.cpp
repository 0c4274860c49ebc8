#include "lockstep/apps/compare_strategies/trials/measured_images.h"

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/training/model_choice.h"
#include "lockstep/apps/train_images/training/optimizer_choice.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/seconds_since.h"
#include "lockstep/runtime/devices/cudnn_benchmark.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/precision/tf32.h"
#include "lockstep/strategies/nn/losses.h"

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs once per replica. Returns its part of the global batch's mean loss.
template <typename Model>
torch::Tensor measured_step(ReplicaContext& replica, Model& model, Optimizer& optimizer, GradScaler& scaler,
                            const PrecisionKind& precision, const Example& batch) {
  optimizer->zero_grad();
  torch::Tensor losses;
  {
    const auto cast = replica.autocast(autocast_dtype(precision));
    const auto logits = model->forward(batch.data.to(parameter_dtype(precision)));
    losses = torch::cross_entropy_loss(logits, batch.target, {}, at::Reduction::None);
  }
  const auto loss = compute_average_loss(replica, losses);
  scaler.scale(loss).backward();
  replica.apply_gradients(*optimizer, {.scaler = &scaler});
  scaler.update();
  return loss.detach();
}

/// Losses that the replicas of this process returned, step by step.
class StepLosses {
 public:
  explicit StepLosses(size_t num_replicas) : losses_(num_replicas) {}

  void add(const PerReplica<torch::Tensor>& losses) {
    for (size_t i = 0; i < losses_.size(); ++i) losses_[i].push_back(losses.local_values()[i]);
    devices_ = losses.devices();
  }

  /// Waits until the devices have done all steps.
  void wait() const {
    for (const auto& losses : losses_) {
      if (!losses.empty()) losses.back().item<double>();
    }
  }

  /// Returns the losses of the global batches. A collective of all workers.
  std::vector<double> sums(Strategy& strategy) const {
    std::vector<torch::Tensor> stacked;
    for (const auto& losses : losses_) stacked.push_back(torch::stack(losses).to(torch::kDouble));
    const auto sums =
        strategy.reduce(ReduceOp::kSum, PerReplica(std::move(stacked), devices_)).cpu().contiguous();
    return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + sums.numel()};
  }

 private:
  std::vector<std::vector<torch::Tensor>> losses_;  // by replica, then by step
  std::shared_ptr<const Devices> devices_;
};

template <typename Model>
MeasuredTraining train_and_measure(const CompareOptions& options, const TrainOptions& work,
                                   Strategy& strategy, const ImageData& data,
                                   const std::function<Model(ReplicaContext&)>& make_model) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    Model made = make_model(replica);
    made->to(parameter_dtype(work.precision));
    return made;
  });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return make_optimizer(work, work.learning_rate, model[replica]->parameters());
  });
  auto scaler = strategy.scope([&](ReplicaContext& replica) {
    return GradScaler(replica.device(), {.enabled = needs_loss_scaling(work.precision)});
  });
  auto batches = distribute(strategy, data.train,
                            {.global_batch_size = work.global_batch_size, .shuffle_seed = work.seed})
                     .repeat();
  model.train();

  MeasuredRun run{.replicas = strategy.num_replicas_in_sync(), .description = strategy.describe()};
  StepLosses losses(static_cast<size_t>(strategy.num_local_replicas()));
  auto batch = batches.begin();
  double waited_before = 0;
  Clock::time_point begin;
  for (int64_t step = 0; step < options.steps; ++step) {
    if (step == options.warmup_steps) {
      losses.wait();
      waited_before = mean_seconds_waited(strategy);
      begin = Clock::now();
    }
    const auto before_batch = Clock::now();
    if (step > 0) ++batch;
    if (step >= options.warmup_steps) {
      run.data_wait_seconds += measurement::seconds_since(before_batch);
      run.examples += batch->batch_sizes()->global;
    }
    losses.add(strategy.run(measured_step<Model>, model, optimizer, scaler, work.precision, *batch));
  }
  losses.wait();
  run.seconds = measurement::seconds_since(begin);
  run.communication_seconds = mean_seconds_waited(strategy) - waited_before;
  run.peak_memory_bytes = measurement::peak_memory_bytes();
  run.losses = losses.sums(strategy);
  auto parameters = doubles_of(model.primary()->parameters());
  run.parameters = static_cast<int64_t>(parameters.size());
  return {std::move(run), std::move(parameters)};
}

MeasuredTraining measure(const CompareOptions& options, const TrainOptions& work, Strategy& strategy,
                         const ImageData& data) {
  if (work.model == ModelKind::kSimpleCnn) {
    const auto cnn = simple_cnn_options(work, data.num_classes);
    return train_and_measure<SimpleCnn>(options, work, strategy, data,
                                        [&](ReplicaContext&) { return SimpleCnn(cnn); });
  }
  const auto mobilenet = mobilenet_v2_options(work, data.num_classes);
  return train_and_measure<MobileNetV2>(options, work, strategy, data,
                                        [&](ReplicaContext&) { return MobileNetV2(mobilenet); });
}

}  // namespace

MeasuredTraining measure_images(const CompareOptions& options, const TrainOptions& work) {
  const MadeStrategy made = choose_strategy(work, {.program = "compare_strategies", .seed = work.seed});
  check_precision(work.precision, made.strategy->devices());
  const Tf32Guard tf32(tf32_use(work.precision));
  const CudnnBenchmarkGuard benchmark(measures_convolutions(work.cudnn_benchmark, made.strategy->devices()));
  const DataLocation location = locate_data(work.data);
  const ImageData data = load_images(location, work);
  auto measured = measure(options, work, *made.strategy, data);
  measured.run.data = location.why;
  return measured;
}

}  // namespace lockstep::apps
