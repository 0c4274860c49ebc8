// Trains as a Keras program does, by fit() with callbacks: which of three rings a point of the plane is on.
//
//     fit_with_callbacks               # on all GPUs, else on the CPU
//     fit_with_callbacks cpu:0 cpu:1   # on two replicas that share the CPU
//
// Press Ctrl-C and start it again: it resumes after the same step. It writes into the folder `rings`. To see
// the curves, run `tensorboard --logdir rings/logs`.
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

// Points [count, 2], and the ring of each as int64 [count].
std::pair<torch::Tensor, torch::Tensor> three_rings(int64_t count, uint64_t seed) {
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(seed);
  const auto ring = torch::arange(count) % 3;
  const auto radius = 1 + ring + 0.15 * torch::randn({count}, generator);
  const auto angle = 2 * M_PI * torch::rand({count}, generator);
  return {torch::stack({radius * angle.cos(), radius * angle.sin()}, 1), ring};
}

torch::nn::Sequential make_model(ReplicaContext&) {
  using torch::nn::Linear, torch::nn::ReLU;
  return torch::nn::Sequential(Linear(2, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 3));
}

int main(int argc, char** argv) try {
  MirroredStrategy strategy(std::vector<std::string>(argv + 1, argv + argc), {.seed = 1});
  std::cout << strategy.describe() << '\n';

  torch::manual_seed(1);
  Trainer trainer(strategy, make_model, [](auto parameters) { return FusedAdam(parameters, 0.003); },
                  cross_entropy, {{"accuracy", CategoricalAccuracy()}});

  // From here on, Ctrl-C and SIGTERM end the fit after its current step.
  const InterruptionGuard interruption;
  const auto stop_on_signal = std::make_shared<StopOnSignal>(interruption);
  const MonitorOptions monitor{.name = "validation_accuracy"};
  const Callbacks callbacks{std::make_shared<EarlyStopping>(EarlyStoppingOptions{
                                .monitor = monitor, .patience = 5, .restore_best = true}),
                            std::make_shared<ModelCheckpoint>(
                                ModelCheckpointOptions{.folder = "rings/checkpoints", .monitor = monitor}),
                            std::make_shared<TensorBoard>(TensorBoardOptions{.folder = "rings/logs"}),
                            std::make_shared<ShowProgress>(),
                            stop_on_signal,
                            std::make_shared<BackupAndRestore>(BackupOptions{
                                .folder = "rings/backup", .save_every = SaveInterval::steps(100)})};

  const auto [x, y] = three_rings(6000, 1);
  const auto [x_validation, y_validation] = three_rings(1000, 2);
  trainer.fit(x, y,
              {.epochs = 40,
               .validation = {x_validation, y_validation},
               .callbacks = callbacks,
               .batches = {.global_batch_size = 100, .shuffle_seed = 1}});
  if (stop_on_signal->signal() != 0) return 128 + stop_on_signal->signal();  // all is saved

  // EarlyStopping has restored the best epoch's weights, which rings/checkpoints/best.safetensors holds too.
  const auto [x_test, y_test] = three_rings(1000, 3);
  const Evaluation test = trainer.evaluate(x_test, y_test);
  std::cout << "test accuracy " << test.logs.at("accuracy") << '\n';
} catch (const std::exception&) {
  std::cerr << "error: " << error_text(std::current_exception()) << '\n';
  return 1;
}
