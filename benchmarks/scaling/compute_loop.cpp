#include "lockstep/benchmarks/scaling/compute_loop.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/measurement/seconds_since.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/gradients/gradient_buckets.h"
#include "lockstep/runtime/gradients/gradient_hooks.h"

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<size_t> reversed(size_t count) {
  std::vector<size_t> order;
  for (size_t i = count; i > 0; --i) order.push_back(i - 1);
  return order;
}

}  // namespace

class ComputeLoop::Training {
 public:
  Training(const Workload& workload, const ComputeLoopOptions& options)
      : options_(options),
        batch_(random_batch(workload, options.most_examples)),
        model_(workload),
        parameters_(model_->parameters()),
        optimizer_(make_optimizer(workload, *model_)) {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    set_intra_op_threads(std::max(1, cores / options.num_processes));
    lay_out(reversed(parameters_.size()));
    // As in the library, the order in which the first step's gradients arrive decides the buckets of all
    // later steps.
    arrivals_.clear();
    step(options.most_examples);
    lay_out(std::exchange(arrivals_, {}));
  }

  Times run(int steps, int64_t num_examples) {
    sums_ = {};
    ready_sums_.assign(parameters_.size(), 0);
    for (int i = 0; i < steps; ++i) {
      arrivals_.clear();
      step(num_examples);
    }
    Times times = sums_;
    for (double* sum : {&times.mean.forward_seconds, &times.mean.backward_seconds,
                        &times.mean.optimizer_seconds, &times.copy_seconds}) {
      *sum /= steps;
    }
    for (const size_t index : arrivals_)
      times.mean.gradients.push_back(
          {static_cast<double>(parameters_[index].nbytes()), ready_sums_[index] / steps});
    return times;
  }

  const WorkloadModel& model() const { return model_; }
  size_t num_tensors() const { return parameters_.size(); }

 private:
  void lay_out(const std::vector<size_t>& order) {
    hooks_.reset();
    optimizer_.zero_grad();
    buckets_.lay_out(parameters_, order, options_.buckets);
    ready_sums_.assign(parameters_.size(), 0);
    hooks_.emplace(parameters_, [this](size_t index) { take_in(index); });
  }

  void take_in(size_t index) {
    const torch::NoGradGuard no_grad;
    const auto begin = Clock::now();
    const auto& slot = buckets_.slot(index);
    slot.copy_(parameters_[index].grad());
    parameters_[index].mutable_grad() = slot;
    arrivals_.push_back(index);
    sums_.copy_seconds += measurement::seconds_since(begin);
    ready_sums_[index] += measurement::seconds_since(backward_began_);
  }

  void step(int64_t num_examples) {
    const torch::data::Example<> batch(batch_.data.narrow(0, 0, num_examples),
                                       batch_.target.narrow(0, 0, num_examples));
    const auto began = Clock::now();
    optimizer_.zero_grad();
    auto loss = model_->mean_loss(batch);
    sums_.mean.forward_seconds += measurement::seconds_since(began);
    backward_began_ = Clock::now();
    loss.backward();
    sums_.mean.backward_seconds += measurement::seconds_since(backward_began_);
    const auto backward_ended = Clock::now();
    optimizer_.step();
    sums_.mean.optimizer_seconds += measurement::seconds_since(backward_ended);
    sums_.step_seconds.push_back(measurement::seconds_since(began));
  }

  const ComputeLoopOptions options_;
  torch::data::Example<> batch_;
  WorkloadModel model_;
  std::vector<at::Tensor> parameters_;
  FusedAdamW optimizer_;
  GradientBuckets buckets_;
  std::vector<size_t> arrivals_;
  std::vector<double> ready_sums_;  // by parameter
  Clock::time_point backward_began_;
  Times sums_;
  std::optional<GradientHooks> hooks_;  // last: destroyed before all that take_in() uses
};

ComputeLoop::ComputeLoop(const Workload& workload, const ComputeLoopOptions& options)
    : training_(std::make_unique<Training>(workload, options)) {}

ComputeLoop::~ComputeLoop() = default;

ComputeLoop::Times ComputeLoop::run(int steps, int64_t num_examples) {
  return training_->run(steps, num_examples);
}

int64_t ComputeLoop::num_parameters() const {
  return count_parameters(*training_->model());
}

int64_t ComputeLoop::num_tensors() const {
  return static_cast<int64_t>(training_->num_tensors());
}

}  // namespace lockstep::benchmarks
