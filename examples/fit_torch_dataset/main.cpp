// Trains by Trainer's fit() on a dataset in the style of torch::data: which of three waves a noisy signal is.
//
//     fit_torch_dataset                        # on the environment's cluster, else all GPUs, else the CPU
//     fit_torch_dataset mirrored cpu:0 cpu:1   # by a strategy of this name, on these devices
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

constexpr int64_t kSamples = 64;

// Signals [1, kSamples], each drawn when it is asked for, out of nothing but the seed and its index. A
// real dataset would read a file there.
class Waves : public torch::data::datasets::Dataset<Waves> {
 public:
  Waves(size_t count, uint64_t seed) : count_(count), seed_(seed) {}

  Example get(size_t index) override {
    auto generator = torch::make_generator<at::CPUGeneratorImpl>(seed_ + index);
    const auto numbers = torch::rand({2}, generator);
    const auto cycles = 2 + 2 * numbers[0];
    const auto phase = torch::remainder(cycles * torch::arange(kSamples) / kSamples + numbers[1], 1);
    const auto kind = static_cast<int64_t>(index % 3);
    const auto wave = kind == 0   ? torch::sin(2 * M_PI * phase)          // sine
                      : kind == 1 ? torch::where(phase < 0.5, 1.0, -1.0)  // square
                                  : 2 * phase - 1;                        // sawtooth
    const auto noise = 0.5 * torch::randn({kSamples}, generator);
    return {(wave + noise).to(torch::kFloat).unsqueeze(0), torch::tensor(kind)};
  }

  torch::optional<size_t> size() const override { return count_; }

 private:
  size_t count_;
  uint64_t seed_;
};

torch::nn::Sequential make_model(ReplicaContext&) {
  const auto convolution = [](int64_t from, int64_t to) {
    return torch::nn::Conv1d(torch::nn::Conv1dOptions(from, to, 5).stride(2).padding(2));
  };
  return torch::nn::Sequential(convolution(1, 16), torch::nn::ReLU(), convolution(16, 32), torch::nn::ReLU(),
                               torch::nn::Flatten(), torch::nn::Linear(32 * kSamples / 4, 3));
}

// Prints after each epoch. With several workers, each has this callback, but only the chief prints.
class PrintEpochs : public Callback {
 public:
  void on_epoch_end(FitState& state) override {
    if (!state.is_chief()) return;
    std::cout << "epoch " << state.epoch;
    for (const auto& [name, value] : state.logs) std::cout << ", " << name << ' ' << value;
    std::cout << '\n';
  }
};

int main(int argc, char** argv) try {
  const std::string name = argc > 1 ? argv[1] : "auto";
  const auto [strategy, reason] =
      make_strategy(name, {.devices = std::vector<std::string>(argv + std::min(argc, 2), argv + argc)});
  std::cout << reason << '\n' << strategy->describe() << '\n';

  torch::manual_seed(1);
  Trainer trainer(*strategy, make_model, [](auto parameters) { return FusedAdam(parameters); }, cross_entropy,
                  {{"accuracy", CategoricalAccuracy()}, {"confusion", ConfusionMatrix(3)}});

  // LibTorch's transforms work as ever. Examples are stacked into batches by themselves.
  const auto scale =
      torch::data::transforms::TensorLambda<>([](torch::Tensor signal) { return signal / 0.8; });
  const auto test =
      strategy->distribute_dataset(Waves(600, 1'000'000).map(scale), {.global_batch_size = 200});
  trainer.fit(Waves(2000, 0).map(scale),
              {.epochs = 6,
               .validation = test,
               .callbacks = {cosine_schedule(0.003, {.warmup_steps = 20}),
                             std::make_shared<EarlyStopping>(EarlyStoppingOptions{.restore_best = true}),
                             std::make_shared<PrintEpochs>()},
               .batches = {.global_batch_size = 50, .shuffle_seed = 1},
               .clip_norm = 5});

  const auto results = trainer.evaluate(Waves(600, 2'000'000).map(scale));
  if (strategy->first_local_replica() == 0) {  // of several workers, the first
    for (const auto& [metric, value] : results.logs) std::cout << "test " << metric << ' ' << value << '\n';
    for (const auto& [metric, value] : results.tensors)
      std::cout << "test " << metric << '\n' << value << '\n';
    // Python's safetensors reads it.
    save_safetensors("waves.safetensors", state_dict(*trainer.model().primary()));
  }
} catch (const std::exception&) {
  std::cerr << "error: " << error_text(std::current_exception()) << '\n';
  return 1;
}
