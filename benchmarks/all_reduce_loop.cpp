#include "lockstep/benchmarks/all_reduce_loop.h"

#include <c10/util/StringUtil.h>

#include <chrono>
#include <stdexcept>

#include "lockstep/benchmarks/loops/training_loop.h"

namespace lockstep::benchmarks {
namespace {

using Tensors = std::vector<torch::Tensor>;

StrategyOptions strategy_options(const std::string& op, const ReplicaDevices& devices) {
  StrategyOptions options;
  options.cross_device_ops = make_cross_device_ops(op);
  options.replicas_per_device = devices.replicas_per_device;
  return options;
}

void sum(ReplicaContext& replica, const Tensors& tensors) {
  for (const auto& tensor : tensors) replica.all_reduce_(ReduceOp::kSum, tensor);
}

}  // namespace

std::string ReplicaDevices::str() const {
  std::string text = c10::str(num_replicas(), " replicas on ");
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text;
}

AllReduceLoop::AllReduceLoop(const std::string& op, const ReplicaDevices& devices)
    : op_(op), strategy_(devices.names, strategy_options(op, devices)) {}

void AllReduceLoop::set_tensors(const std::vector<int64_t>& bytes) {
  tensors_.reset();
  tensors_ = std::make_unique<PerReplica<Tensors>>(strategy_.run([&](ReplicaContext& replica) {
    Tensors tensors;
    for (const int64_t size : bytes) {
      tensors.push_back(torch::full({size / static_cast<int64_t>(sizeof(float))}, replica.replica_id() + 1.0,
                                    torch::TensorOptions(torch::kFloat32).device(replica.device())));
    }
    sum(replica, tensors);
    return tensors;
  }));
  const int64_t count = strategy_.num_replicas_in_sync();
  for (const auto& replica : tensors_->local_values()) {
    for (const auto& tensor : replica) {
      if (!tensor.eq(static_cast<double>(count * (count + 1)) / 2).all().item<bool>())
        throw std::runtime_error("[benchmark] expected the sum over the replicas, but " + op_ +
                                 " gave another one");
      // Sums of any other value would grow without bound from one repetition to the next.
      tensor.zero_();
    }
  }
  synchronize(strategy_.devices());
}

double AllReduceLoop::seconds_for(int repetitions) {
  const auto begin = std::chrono::steady_clock::now();
  strategy_.run(
      [](ReplicaContext& replica, const Tensors& tensors, const int& count) {
        for (int i = 0; i < count; ++i) sum(replica, tensors);
      },
      *tensors_, repetitions);
  synchronize(strategy_.devices());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace lockstep::benchmarks
