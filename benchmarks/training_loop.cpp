#include "lockstep/benchmarks/training_loop.h"

#include <torch/cuda.h>

#include <barrier>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep::benchmarks {
namespace {

int cores_for_each(int num_threads) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / num_threads);
}

/// A model, an optimizer and a batch in one thread.
class PlainTraining {
 public:
  PlainTraining(const Workload& workload, int64_t num_examples)
      : dtype_(dtype_of(workload)),
        model_(on_device(make_model(workload), workload)),
        optimizer_(model_->parameters(), 1e-3),
        batch_(random_batch(workload, num_examples, device_of(workload))) {}

  void step() {
    optimizer_.zero_grad();
    torch::Tensor loss;
    {
      const AutocastGuard cast(batch_.data.device().type(), dtype_);
      loss = torch::cross_entropy_loss(model_->forward(batch_.data), batch_.target);
    }
    loss.backward();
    optimizer_.step();
  }

  const MobileNetV2& model() const { return model_; }

 private:
  static MobileNetV2 on_device(MobileNetV2 model, const Workload& workload) {
    model->to(device_of(workload));
    return model;
  }

  torch::ScalarType dtype_;
  MobileNetV2 model_;
  FusedAdam optimizer_;
  torch::data::Example<> batch_;
};

class BareLoop : public TrainingLoop {
 public:
  explicit BareLoop(const Workload& workload)
      : devices_(parse_devices(workload.gpus)), training_(workload, workload.global_batch_size) {
    at::set_num_threads(cores_for_each(1));
  }
  void run(int steps) override {
    for (int i = 0; i < steps; ++i) training_.step();
    synchronize(devices_);
  }
  int64_t num_parameters() const override { return count_parameters(*training_.model()); }

 private:
  std::vector<LogicalDevice> devices_;
  PlainTraining training_;
};

class IndependentLoops : public TrainingLoop {
 public:
  IndependentLoops(const Workload& workload, int num_threads)
      : begin_(num_threads + 1), end_(num_threads + 1) {
    for (int i = 0; i < num_threads; ++i)
      trainings_.push_back(
          std::make_unique<PlainTraining>(workload, workload.global_batch_size / num_threads));
    for (auto& training : trainings_)
      threads_.emplace_back([this, &training = *training, num_threads] { work(training, num_threads); });
  }
  ~IndependentLoops() override {
    steps_.reset();
    begin_.arrive_and_wait();
    for (auto& thread : threads_) thread.join();
  }

  void run(int steps) override {
    steps_ = steps;
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
  }
  int64_t num_parameters() const override { return count_parameters(*trainings_[0]->model()); }

 private:
  void work(PlainTraining& training, int num_threads) {
    set_intra_op_threads(cores_for_each(num_threads));
    while (true) {
      begin_.arrive_and_wait();
      if (!steps_) return;
      for (int i = 0; i < *steps_; ++i) training.step();
      end_.arrive_and_wait();
    }
  }

  std::vector<std::unique_ptr<PlainTraining>> trainings_;
  std::optional<int> steps_;  // written only between end_ and begin_; empty ends the threads
  std::barrier<> begin_;
  std::barrier<> end_;
  std::vector<std::thread> threads_;
};

}  // namespace

double TrainingLoop::seconds_for(int steps) {
  const auto begin = std::chrono::steady_clock::now();
  run(steps);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::unique_ptr<TrainingLoop> make_bare_loop(const Workload& workload) {
  return std::make_unique<BareLoop>(workload);
}

std::unique_ptr<TrainingLoop> make_independent_loops(const Workload& workload, int num_threads) {
  if (!workload.gpus.empty()) {
    throw std::invalid_argument("[benchmark] expected independent loops on the CPU, but got " +
                                workload.gpu_list());
  }
  return std::make_unique<IndependentLoops>(workload, num_threads);
}

MobileNetV2 make_model(const Workload& workload) {
  return MobileNetV2(MobileNetV2Options{
      .num_classes = 10,
      .head = workload.dense_head ? MobileNetV2Head::kFlattenedDense : MobileNetV2Head::kGlobalAverage,
      .image_size = workload.image_size});
}

torch::data::Example<> random_batch(const Workload& workload, int64_t num_examples,
                                    const torch::Device& device) {
  // Like a dataset's thread, this starts no thread pool, which would make the loop's threads wait asleep.
  const IntraOpThreadsGuard no_pool(1);
  return {torch::randn({num_examples, 3, workload.image_size, workload.image_size})
              .contiguous(torch::MemoryFormat::ChannelsLast)
              .to(device),
          torch::randint(10, {num_examples}, torch::kLong).to(device)};
}

torch::Device device_of(const Workload& workload) {
  return workload.gpus.empty() ? torch::Device(torch::kCPU) : parse_device(workload.gpus[0]).torch_device();
}

torch::ScalarType dtype_of(const Workload& workload) {
  return workload.bfloat16 ? torch::kBFloat16 : torch::kFloat32;
}

void synchronize(const std::vector<LogicalDevice>& devices) {
  for (const auto& device : devices) {
    if (device.kind == DeviceKind::kGpu) torch::cuda::synchronize(device.index);
  }
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace lockstep::benchmarks
