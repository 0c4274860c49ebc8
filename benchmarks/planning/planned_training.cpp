#include "lockstep/benchmarks/planning/planned_training.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/benchmarks/planning/planned_model.h"
#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded_module.h"

namespace lockstep::benchmarks {
namespace {

using Model = std::shared_ptr<torch::nn::Module>;
using Optimizer = std::unique_ptr<torch::optim::Optimizer>;

/// Makes parts units, and calls them by recompute(), as the layout says.
PartWrapper wrapper_of(const PlannedTraining& training, ReplicaContext& replica) {
  const bool has_units = training.layout.stage == 3;
  if (!has_units && !training.recomputes) return {};
  return [&training, &replica, has_units](const ModelPart& part) -> WrappedPart {
    using Call = std::function<torch::Tensor(const PartFunction&, const torch::Tensor&)>;
    Model module = part.module;
    Call call = [](const PartFunction& function, const torch::Tensor& x) { return function(x); };
    if (has_units && !module->parameters().empty()) {
      UnitOptions options = along(replica.axis(batch_axis(training)));
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

Mesh mesh_of(const PlannedTraining& training) {
  const auto& layout = training.layout;
  return {{batch_axis(training), static_cast<int>(layout.replicas)},
          {"pipeline", layout.pipeline.ranks},
          {"context", training.context},
          {"tensor", training.tensor}};
}

std::unique_ptr<Strategy> make_strategy_of(const PlannedTraining& training) {
  const auto& layout = training.layout;
  StrategyOptions options{.intra_op_threads = 1,
                          .seed = 1,
                          .mesh = mesh_of(training),
                          .sharding = {.stage = layout.stage < 3 ? layout.stage : 0},
                          .buckets = layout.buckets};
  if (training.uses_processes)
    return std::make_unique<MultiWorkerMirroredStrategy>(nullptr, cpu_devices(1), options);
  return std::make_unique<MirroredStrategy>(cpu_devices(static_cast<int>(num_ranks(training))), options);
}

/// One step of a rank.
void train_step(const PlannedTraining& training, ReplicaContext& replica, Model& model,
                Optimizer& optimizer) {
  const TrainingLayout& layout = training.layout;
  optimizer->zero_grad();
  if (layout.pipeline.ranks > 1) {
    const auto batch = make_planned_batch(training, layout.examples * layout.micro_batches);
    train_planned_stages(training, replica, *model, batch);
    replica.apply_gradients(*optimizer);
    return;
  }
  const int64_t all = layout.examples * layout.micro_batches * layout.replicas;
  const auto go = [&] {
    const PlannedBatch batch = make_planned_batch(training, layout.examples);
    const auto loss =
        compute_average_loss(replica, planned_losses(training, *model, batch), {.global_batch_size = all});
    // All begin backward at once.
    if (layout.stage == 3 && layout.replicas > 1) replica.all_reduce(ReduceOp::kSum, loss.detach());
    loss.backward();
  };
  for (int64_t i = 1; i < layout.micro_batches; ++i) {
    const auto hold = replica.accumulate();
    go();
  }
  go();
  replica.apply_gradients(*optimizer);
}

/// Counts the bytes of each rank of this process, and of all of them.
class RankAccounts {
 public:
  explicit RankAccounts(size_t ranks) : before_(measurement::counted_bytes()) {
    for (size_t i = 0; i < ranks; ++i) accounts_.push_back(std::make_shared<measurement::TensorAccount>());
  }
  const std::shared_ptr<measurement::TensorAccount>& of(const ReplicaContext& replica) const {
    return accounts_.size() == 1 ? accounts_[0] : accounts_[static_cast<size_t>(replica.rank())];
  }
  void restart_peaks() {
    rest_ = measurement::counted_bytes() - before_;
    for (const auto& account : accounts_) {
      rest_ -= account->bytes();
      account->restart_peak();
    }
    measurement::restart_counted_peak();
  }
  int64_t peak_of_all() const { return measurement::counted_peak() - before_; }
  /// Returns the most that the rank had, and its share of what nobody accounts for, such as the strategy's.
  int64_t peak_of(size_t rank) const {
    return accounts_[rank]->peak() + rest_ / static_cast<int64_t>(accounts_.size());
  }
  size_t size() const { return accounts_.size(); }

 private:
  int64_t before_;
  int64_t rest_ = 0;
  std::vector<std::shared_ptr<measurement::TensorAccount>> accounts_;
};

}  // namespace

std::vector<int64_t> measured_peaks(const PlannedTraining& training) {
  constexpr int kFirstSteps = 2, kMeasuredSteps = 3, kStepsOfUnits = 12;
  constexpr std::chrono::seconds kTimeOfUnits{2};
  const TrainingLayout& layout = training.layout;
  // Replicas share the memory of units, so that only all of them together can be counted, while they need
  // most at moments that differ from step to step.
  const bool has_units = layout.stage == 3 && layout.replicas > 1 && !training.uses_processes;
  RankAccounts accounts(training.uses_processes ? 1 : static_cast<size_t>(num_ranks(training)));
  const auto strategy = make_strategy_of(training);
  // Before a run, the strategy allocates buckets and the like of a rank in that rank's thread.
  strategy->run([&](ReplicaContext& replica) { measurement::count_thread_in(accounts.of(replica)); });
  auto models = strategy->scope([&](ReplicaContext& replica) {
    const measurement::TensorAccountGuard guard(accounts.of(replica));
    return make_planned_model(training, wrapper_of(training, replica), &replica, layout.pipeline.ranks > 1);
  });
  auto optimizers = strategy->scope([&](ReplicaContext& replica) {
    const measurement::TensorAccountGuard guard(accounts.of(replica));
    return make_planned_optimizer(training, models[replica]->parameters());
  });
  std::vector<int64_t> stage_of(accounts.size());
  const auto step = [&](ReplicaContext& replica, Model& model, Optimizer& optimizer) {
    stage_of[accounts.size() == 1 ? 0 : static_cast<size_t>(replica.rank())] =
        replica.axis("pipeline").index();
    train_step(training, replica, model, optimizer);
  };
  for (int i = 0; i < kFirstSteps; ++i) strategy->run(step, models, optimizers);
  const auto begin = std::chrono::steady_clock::now();
  const auto is_done = [&](int steps) {
    if (!has_units) return steps == kMeasuredSteps;
    return steps >= kStepsOfUnits && std::chrono::steady_clock::now() - begin > kTimeOfUnits;
  };
  std::vector<int64_t> most(accounts.size(), 0);
  int64_t most_of_all = 0;
  for (int steps = 0; !is_done(steps); ++steps) {
    accounts.restart_peaks();
    strategy->run(step, models, optimizers);
    most_of_all = std::max(most_of_all, accounts.peak_of_all());
    for (size_t rank = 0; rank < most.size(); ++rank)
      most[rank] = std::max(most[rank], accounts.peak_of(rank));
  }
  const auto num_stages = static_cast<size_t>(layout.pipeline.ranks);
  if (has_units && num_stages == 1) return {most_of_all / static_cast<int64_t>(accounts.size())};
  std::vector<int64_t> peaks(num_stages, 0);
  for (size_t rank = 0; rank < most.size(); ++rank) peaks[static_cast<size_t>(stage_of[rank])] += most[rank];
  for (auto& peak : peaks) peak /= static_cast<int64_t>(accounts.size() / num_stages);
  return peaks;
}

}  // namespace lockstep::benchmarks
