#include "lockstep/benchmarks/loops/strategy_loop.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "lockstep/datasets/images/image_folder.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/sharding/sharded_module.h"

namespace lockstep::benchmarks {
namespace {

using Batch = torch::data::Example<>;

torch::Tensor train_step(ReplicaContext& replica, WorkloadModel& model, FusedAdamW& optimizer,
                         const torch::ScalarType& dtype, const bool& overlaps, const Batch& batch) {
  optimizer.zero_grad();
  if (model->has_stages()) {
    const auto losses = model->forward_backward(replica, batch);
    replica.apply_gradients(optimizer);
    return losses.mean();
  }
  torch::Tensor losses;
  {
    const auto cast = replica.autocast(dtype);
    losses = model->losses(batch);
  }
  auto loss = compute_average_loss(replica, losses);
  if (overlaps) {
    loss.backward();
  } else {
    const auto held = replica.accumulate();
    loss.backward();
  }
  replica.apply_gradients(optimizer);
  return loss.detach();
}

/// Returns what makes each block of the model a unit.
PartWrapper units_of_blocks(const UnitOptions& options) {
  return [options](const ModelPart& part) {
    if (!part.name.starts_with("blocks.")) return WrappedPart{part.module};
    UnitOptions own = options;
    own.name = part.name;
    const auto unit = std::make_shared<ShardedModule>(part.module, own);
    return WrappedPart{unit, [unit](const PartFunction& function, const torch::Tensor& x) {
                         return unit->call(function, x);
                       }};
  };
}

bool share_a_gpu(const Workload& workload, const StrategyLoopOptions& options) {
  return workload.gpus.size() == 1 && !options.cluster;
}

/// Throws unless the replicas share one GPU or have one each.
void check_gpus(const Workload& workload, const StrategyLoopOptions& options) {
  const auto& gpus = workload.gpus;
  if (gpus.empty() || share_a_gpu(workload, options)) return;
  if (static_cast<int>(gpus.size()) != options.num_replicas) {
    throw std::invalid_argument(c10::str("[benchmark] expected a replica on each of ", workload.gpu_list(),
                                         ", but got ", options.num_replicas, " replicas"));
  }
}

std::vector<std::string> devices_of(const Workload& workload, const StrategyLoopOptions& options) {
  if (workload.gpus.empty()) return cpu_devices(options.cluster ? 1 : options.num_replicas);
  if (!options.cluster) return workload.gpus;
  // All workers see all GPUs, and worker i takes the ith.
  return {workload.gpus.at(static_cast<size_t>(options.cluster->rank()))};
}

StrategyOptions strategy_options(const Workload& workload, const StrategyLoopOptions& options) {
  StrategyOptions result;
  if (share_a_gpu(workload, options)) result.replicas_per_device = options.num_replicas;
  if (options.bucket_bytes) result.buckets.bucket_bytes = *options.bucket_bytes;
  for (const auto& [axis, ranks] :
       {std::pair("tensor", options.tensor), std::pair("pipeline", options.pipeline)}) {
    if (ranks == 1) continue;
    if (options.num_replicas % ranks != 0)
      throw std::invalid_argument(c10::str("[benchmark] expected a multiple of ", ranks,
                                           " ranks for the axis ", axis, ", but got ", options.num_replicas));
    result.mesh = Mesh{{"data", options.num_replicas / ranks}, {axis, ranks}};
  }
  result.sharding.stage = options.sharding;
  result.communication.gradient_compression = make_gradient_compression(options.gradient_compression);
  return result;
}

std::unique_ptr<Strategy> make_strategy(const Workload& workload, const StrategyLoopOptions& options) {
  check_gpus(workload, options);
  if (options.sharding == 3 && workload.model != BenchmarkModel::kGpt)
    throw std::invalid_argument("[benchmark] expected the model gpt with sharding stage 3, but got " +
                                std::string(workload.model_name()));
  const auto devices = devices_of(workload, options);
  if (!options.cluster)
    return std::make_unique<MirroredStrategy>(devices, strategy_options(workload, options));
  return std::make_unique<MultiWorkerMirroredStrategy>(
      options.cluster, devices, strategy_options(workload, options), options.cluster_options);
}

/// Trains replicas of a model; subclasses provide the batches.
class StrategyLoop : public TrainingLoop {
 public:
  StrategyLoop(const Workload& workload, const StrategyLoopOptions& options)
      : workload_(workload),
        overlaps_(options.overlaps),
        strategy_(make_strategy(workload, options)),
        model_(strategy_->scope([&](ReplicaContext& replica) {
          if (options.tensor > 1) return WorkloadModel(workload, replica.axis("tensor"));
          if (options.pipeline > 1)
            return WorkloadModel(WorkloadModelImpl::in_stages(workload, replica.axis("pipeline")));
          const auto& sharding = strategy_->sharding();
          return WorkloadModel(workload, sharding.stage == 3
                                             ? units_of_blocks(along(replica.axis(sharding.axis)))
                                             : PartWrapper());
        })),
        optimizer_(strategy_->scope(
            [&](ReplicaContext& replica) { return make_optimizer(workload, *model_[replica]); })),
        step_(train_step, {.enabled = workload.cuda_graph}) {}

  void run(int steps) override {
    for (int i = 0; i < steps; ++i)
      losses_ = strategy_->run(step_, model_, optimizer_, dtype_of(workload_), overlaps_, next_batch());
    synchronize(strategy_->devices());
  }
  double last_loss() override {
    if (strategy_->num_replicas_in_sync() > 1)
      throw std::invalid_argument(
          c10::str("[benchmark] expected one replica, whose loss is known here, "
                   "but got ",
                   strategy_->num_replicas_in_sync()));
    return losses_.value().local_values().front().item<double>();
  }
  int64_t num_parameters() const override { return count_parameters(*model_.primary()); }

 protected:
  virtual PerReplica<Batch>& next_batch() = 0;

  Workload workload_;
  const bool overlaps_;
  std::unique_ptr<Strategy> strategy_;

 private:
  Mirrored<WorkloadModel> model_;
  Mirrored<FusedAdamW> optimizer_;
  CudaGraph<decltype(&train_step)> step_;
  std::optional<PerReplica<torch::Tensor>> losses_;  // of the last step
};

/// Trains on one random batch over and over.
class SameBatchLoop : public StrategyLoop {
 public:
  SameBatchLoop(const Workload& workload, const StrategyLoopOptions& options)
      : StrategyLoop(workload, options), batch_(make_batch(*strategy_, workload)) {
    // A distributed dataset would set them like this.
    batch_.set_batch_sizes(
        {workload.global_batch_size,
         std::vector<int64_t>(static_cast<size_t>(strategy_->num_local_replicas()),
                              workload.global_batch_size / strategy_->num_replicas_in_sync())});
  }

 protected:
  PerReplica<Batch>& next_batch() override { return batch_; }

 private:
  static PerReplica<Batch> make_batch(const Strategy& strategy, const Workload& workload) {
    const int num_replicas = strategy.num_replicas_in_sync();
    if (workload.global_batch_size % num_replicas != 0)
      throw std::invalid_argument("[benchmark] expected a global batch that the replicas can share equally");
    size_t local = 0;
    return strategy.distribute_values_from_function([&](const ValueContext& context) {
      // The ranks of a replica have the same batch.
      torch::manual_seed(static_cast<uint64_t>(context.replica_id_in_sync_group));
      return random_batch(workload, workload.global_batch_size / num_replicas,
                          strategy.devices()[local++].torch_device());
    });
  }

  PerReplica<Batch> batch_;
};

/// Trains on shuffled images from files.
class ImageLoop : public StrategyLoop {
 public:
  ImageLoop(const Workload& workload, const StrategyLoopOptions& options)
      : StrategyLoop(workload, options),
        batches_(strategy_
                     ->distribute_dataset(ImageFolder(workload.images, {.image_size = workload.image_size}),
                                          {.global_batch_size = workload.global_batch_size,
                                           .shuffle_seed = 1,
                                           .drop_remainder = true})
                     .repeat()),
        next_(batches_.begin()) {
    if (next_ == std::default_sentinel)
      throw std::invalid_argument(
          "[benchmark] expected images for a global batch at least, but got fewer in " + workload.images);
  }

 protected:
  PerReplica<Batch>& next_batch() override {
    if (has_begun_) ++next_;
    has_begun_ = true;
    return *next_;
  }

 private:
  DistributedDataset<Batch> batches_;
  DistributedDataset<Batch>::Iterator next_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<TrainingLoop> make_strategy_loop(const Workload& workload,
                                                 const StrategyLoopOptions& options) {
  // All workers cut the same initial values.
  if (options.sharding == 3 || options.tensor > 1 || options.pipeline > 1) torch::manual_seed(1);
  if (!workload.images.empty()) return std::make_unique<ImageLoop>(workload, options);
  return std::make_unique<SameBatchLoop>(workload, options);
}

}  // namespace lockstep::benchmarks
