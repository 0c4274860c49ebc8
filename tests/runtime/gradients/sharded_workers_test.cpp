// Sharded state over the replicas of several workers. Oracle: one optimizer on the sum of all losses.
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "lockstep/tests/runtime/gradients/sharded_training.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

constexpr int kWorkersSteps = compared_steps(10);

std::unique_ptr<torch::optim::AdamW> make_adamw(const Parameters& parameters) {
  return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.02));
}

/// The part of one worker's replicas in a training.
class WorkersPart {
 public:
  WorkersPart(WorkerGroup& workers, int stage)
      : first_(workers.layout()->first_local()), threads_(workers.layout()->num_local(), 1) {
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<torch::optim::Optimizer*> optimizers;
    for (int replica = 0; replica < threads_.count(); ++replica) {
      parameters_.push_back(odd_parameters());
      optimizers_.push_back(make_adamw(parameters_.back()));
      modules_.push_back(std::make_shared<ParameterModule>(parameters_.back()));
      modules.push_back(modules_.back());
      optimizers.push_back(optimizers_.back().get());
    }
    auto directory = std::make_shared<ParameterDirectory>();
    directory->add(modules);
    OptimizerGroup::Options options{
        .first_replica = first_, .buckets = kShardedBuckets, .is_accumulating = [](int) { return false; }};
    options.sharding.stage = stage;
    group_ = std::make_unique<OptimizerGroup>(
        optimizers,
        std::make_unique<HierarchicalChannel>(workers.layout(), workers.open_channel("gradients"),
                                              std::chrono::seconds(60)),
        threads_, directory, std::move(options));
  }

  void step(int number) {
    auto& channel = *group_->channel();
    channel.enter();
    const auto errors = threads_.run(
        [&](int replica) {
          const auto self = static_cast<size_t>(replica);
          group_->prepare(replica);
          optimizers_[self]->zero_grad();
          odd_loss(parameters_[self], number, first_ + replica).backward();
          group_->reducer(replica)->finish();
          clip_and_step(*group_, replica, *optimizers_[self], {.clip_norm = 20.0});
          group_->reducer(replica)->mark_applied();
          group_->count_step(replica);
          channel.leave(replica);
        },
        [&](int, const std::exception_ptr&) { channel.abort("another replica failed"); });
    for (const auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    channel.check_complete();
  }

  const std::vector<Parameters>& parameters() const { return parameters_; }
  const ShardedParameters& sharded(int replica) const { return *group_->sharded(replica); }

 private:
  const int first_;
  ReplicaThreads threads_;
  std::vector<Parameters> parameters_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::unique_ptr<OptimizerGroup> group_;
};

class ShardedWorkers : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Replicas, ShardedWorkers,
                         testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 2}));

TEST_P(ShardedWorkers, TrainAsOneDeviceInEachStage) {
  int ranks = 0;
  for (const int count : GetParam()) ranks += count;
  const IntraOpThreadsGuard no_pool(1);
  Parameters single = odd_parameters();
  const auto optimizer = make_adamw(single);
  for (int step = 0; step < kWorkersSteps; ++step) {
    optimizer->zero_grad();
    for (int rank = 0; rank < ranks; ++rank) odd_loss(single, step, rank).backward();
    torch::nn::utils::clip_grad_norm_(single, 20.0);
    optimizer->step();
  }
  for (const int stage : {1, 2}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const auto errors = run_workers(GetParam(), [&](WorkerGroup& workers) {
      WorkersPart part(workers, stage);
      for (int step = 0; step < kWorkersSteps; ++step) part.step(step);
      for (const Parameters& given : part.parameters()) {
        for (size_t i = 0; i < single.size(); ++i)
          EXPECT_TRUE(torch::allclose(given[i], single[i], 1e-12, 1e-12)) << "parameter " << i;
      }
      int64_t owned = 0;
      for (const auto& slice : part.sharded(0).slices()) owned += slice.length;
      EXPECT_LT(owned, 600 + 7 + 1 + 300 + 1200 + 3 + 81 + 24 + 2);
    });
    for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  }
}

}  // namespace
}  // namespace lockstep
