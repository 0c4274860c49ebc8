#include "lockstep/benchmarks/loops/training_loop.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <barrier>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

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
        model_(on_device(WorkloadModel(workload), workload)),
        optimizer_(make_optimizer(workload, *model_)),
        batch_(random_batch(workload, num_examples, device_of(workload))) {}

  void step() {
    optimizer_.zero_grad();
    torch::Tensor loss;
    {
      const AutocastGuard cast(batch_.data.device().type(), dtype_);
      loss = model_->mean_loss(batch_);
    }
    loss.backward();
    optimizer_.step();
  }

  const WorkloadModel& model() const { return model_; }

 private:
  static WorkloadModel on_device(WorkloadModel model, const Workload& workload) {
    model->to(device_of(workload));
    return model;
  }

  torch::ScalarType dtype_;
  WorkloadModel model_;
  FusedAdamW optimizer_;
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

double TrainingLoop::last_loss() {
  throw std::invalid_argument("[benchmark] expected a job mirrored, workers or worker to ask for its loss");
}

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

FusedAdamW make_optimizer(const Workload& workload, const torch::nn::Module& model) {
  return FusedAdamW(model.parameters(), FusedAdamWOptions(1e-3).weight_decay(workload.weight_decay()));
}

torch::data::Example<> random_batch(const Workload& workload, int64_t num_examples,
                                    const torch::Device& device) {
  // Like a dataset's thread, this starts no thread pool, which would make the loop's threads wait asleep.
  const IntraOpThreadsGuard no_pool(1);
  if (workload.model == BenchmarkModel::kGpt) {
    const auto tokens =
        torch::randint(kVocabularySize, {num_examples, workload.sequence_length + 1}, torch::kLong);
    return {tokens.narrow(1, 0, workload.sequence_length).contiguous().to(device),
            tokens.narrow(1, 1, workload.sequence_length).contiguous().to(device)};
  }
  return {torch::randn({num_examples, 3, workload.image_size, workload.image_size})
              .contiguous(torch::MemoryFormat::ChannelsLast)
              .to(device),
          torch::randint(kNumClasses, {num_examples}, torch::kLong).to(device)};
}

torch::Device device_of(const Workload& workload) {
  return workload.gpus.empty() ? torch::Device(torch::kCPU) : parse_device(workload.gpus[0]).torch_device();
}

torch::ScalarType dtype_of(const Workload& workload) {
  return workload.bfloat16 ? torch::kBFloat16 : torch::kFloat32;
}

void synchronize(const std::vector<LogicalDevice>& devices) {
  for (const auto& device : devices) {
    if (device.is_accelerator()) {
      c10::impl::VirtualGuardImpl(device.type).synchronizeDevice(static_cast<c10::DeviceIndex>(device.index));
    }
  }
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) {
    const auto* shard = sharded_parameter_of(parameter);
    count += shard != nullptr ? shard->num_elements() : parameter.numel();
  }
  return count;
}

}  // namespace lockstep::benchmarks
