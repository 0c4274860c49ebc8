#include "lockstep/benchmarks/strategy_loop.h"

#include <stdexcept>

#include "lockstep/strategies/losses.h"
#include "lockstep/strategies/mirrored_strategy.h"
#include "lockstep/training/fused_adam.h"

namespace lockstep::benchmarks {
namespace {

using Batch = torch::data::Example<>;

torch::Tensor train_step(ReplicaContext& replica, MobileNetV2& model, FusedAdam& optimizer,
                         const Batch& batch) {
  optimizer.zero_grad();
  auto losses = torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  auto loss = compute_average_loss(replica, losses);
  loss.backward();
  replica.apply_gradients(optimizer);
  return loss.detach();
}

StrategyOptions strategy_options(const StrategyLoopOptions& options) {
  StrategyOptions result;
  if (options.bucket_bytes) result.buckets.bucket_bytes = *options.bucket_bytes;
  return result;
}

class StrategyLoop : public TrainingLoop {
 public:
  StrategyLoop(const Workload& workload, const StrategyLoopOptions& options)
      : strategy_(cpu_devices(options.num_replicas), strategy_options(options)),
        model_(strategy_.scope([&](ReplicaContext&) { return make_model(workload); })),
        optimizer_(strategy_.scope(
            [&](ReplicaContext& replica) { return FusedAdam(model_[replica]->parameters(), 1e-3); })),
        batch_(strategy_.distribute_values_from_function([&](const ValueContext&) {
          return random_batch(workload, workload.global_batch_size / options.num_replicas);
        })) {
    if (workload.global_batch_size % options.num_replicas != 0)
      throw std::invalid_argument("[benchmark] expected a global batch that the replicas can share equally");
    // As a distributed dataset would set them.
    batch_.set_batch_sizes({workload.global_batch_size,
                            std::vector<int64_t>(static_cast<size_t>(options.num_replicas),
                                                 workload.global_batch_size / options.num_replicas)});
  }

  void run(int steps) override {
    for (int i = 0; i < steps; ++i) strategy_.run(train_step, model_, optimizer_, batch_);
  }
  int64_t num_parameters() const override { return count_parameters(*model_.primary()); }

 private:
  MirroredStrategy strategy_;
  Mirrored<MobileNetV2> model_;
  Mirrored<FusedAdam> optimizer_;
  PerReplica<Batch> batch_;
};

}  // namespace

std::unique_ptr<TrainingLoop> make_strategy_loop(const Workload& workload,
                                                 const StrategyLoopOptions& options) {
  return std::make_unique<StrategyLoop>(workload, options);
}

}  // namespace lockstep::benchmarks
