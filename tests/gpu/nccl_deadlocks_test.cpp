// Several GPUs in one process over NCCL: what would hang on real GPUs. A kernel of NCCL occupies its GPU
// until all ranks have launched theirs, and calls that wait for the driver may wait for such a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/support/tanh_net.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void sleep_on(const ReplicaContext& replica, int id) {
  if (replica.replica_id() == id) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

/// Two layers with SyncBatchNorm between them.
struct NormedNetImpl : torch::nn::Module {
  NormedNetImpl()
      : first(register_module("first", torch::nn::Linear(6, 16))),
        norm(register_module("norm", SyncBatchNorm(16))),
        last(register_module("last", torch::nn::Linear(16, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(norm(first(x))); }

  torch::nn::Linear first;
  SyncBatchNorm norm;
  torch::nn::Linear last;
};
TORCH_MODULE(NormedNet);

PerReplica<torch::Tensor> rows(Strategy& strategy, int64_t count) {
  return strategy.distribute_values_from_function([&](const ValueContext& context) {
    return torch::full({count, 6}, 0.1 * (context.replica_id_in_sync_group + 1), torch::kDouble)
        .to(torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(context.replica_id_in_sync_group)));
  });
}

/// Backward with a slow replica, whose allocations come while the other one's first bucket could be under
/// way.
template <typename Net>
void slow_step(ReplicaContext& replica, Net& model, FusedSgd& sgd, const torch::Tensor& x) {
  sgd.zero_grad();
  const auto loss = model(x).square().sum();
  sleep_on(replica, 1);
  loss.backward();
  replica.apply_gradients(sgd);
}

/// Every parameter has a bucket of its own.
const BucketOptions kManyBuckets{.first_bucket_bytes = 1, .bucket_bytes = 1};

template <typename Net>
class OnTwoGpus {
 public:
  /// `compression`: see make_gradient_compression().
  explicit OnTwoGpus(const std::string& compression = "none")
      : strategy({"gpu:0", "gpu:1"},
                 {.cross_device_ops = nccl_ops(),
                  .buckets = kManyBuckets,
                  .communication = {.gradient_compression = make_gradient_compression(compression)}}) {}

  MirroredStrategy strategy;
  Mirrored<Net> model = strategy.scope([](ReplicaContext&) { return Net(); });
  Mirrored<FusedSgd> sgd =
      strategy.scope([&](ReplicaContext& replica) { return FusedSgd(model[replica]->parameters(), 0.1); });
};

class NcclDeadlocks : public testing::Test {
 protected:
  void SetUp() override { fake_gpu::forget(); }
  void TearDown() override { expect_no_races(); }
};

template <typename Net>
void expect_no_blocking_call_in_the_first_steps(const std::string& compression = "none") {
  OnTwoGpus<Net> training(compression);
  const auto x = rows(training.strategy, 4);
  fake_gpu::forget();
  for (int step = 0; step < 6; ++step) training.strategy.run(slow_step<Net>, training.model, training.sgd, x);
  EXPECT_THAT(fake_gpu::blocking_calls(), IsEmpty());
}

TEST_F(NcclDeadlocks, NoReplicaAllocatesWhileTheFirstStepsBucketsWaitForARank) {
  expect_no_blocking_call_in_the_first_steps<TanhNet>();
}

TEST_F(NcclDeadlocks, NoReplicaAllocatesToRoundTheFirstStepsBuckets) {
  expect_no_blocking_call_in_the_first_steps<TanhNet>("bfloat16");
}

TEST_F(NcclDeadlocks, NoReplicaAllocatesWhileTheFirstStepsOwnCollectivesWaitForARank) {
  expect_no_blocking_call_in_the_first_steps<NormedNet>();
}

torch::Tensor sum_after(ReplicaContext& replica, const bool& allocates) {
  const auto value = torch::ones({2}, replica.device());
  if (allocates && replica.replica_id() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    torch::empty({1 << 20}, replica.device());
  }
  return replica.all_reduce(ReduceOp::kSum, value);
}

// Shows that the two tests above can fail: later, a replica may allocate at any time.
TEST_F(NcclDeadlocks, TheFakeDriverSeesAnAllocationWhileAKernelWaits) {
  OnTwoGpus<TanhNet> training;
  for (int run = 0; run < 3; ++run) training.strategy.run(sum_after, false);
  fake_gpu::forget();
  training.strategy.run(sum_after, true);
  EXPECT_THAT(fake_gpu::blocking_calls(), Contains(HasSubstr("memory was allocated while sum")));
}

TEST_F(NcclDeadlocks, NoReplicaMakesAGraphWhileAnothersReplayWaitsForIt) {
  OnTwoGpus<TanhNet> training;
  const auto x = rows(training.strategy, 4);
  CudaGraph step(slow_step<TanhNet>, {.warm_up_runs = 4});
  fake_gpu::forget();
  for (int run = 0; run < 8; ++run) training.strategy.run(step, training.model, training.sgd, x);
  EXPECT_EQ(step.statistics().captures, 1);
  EXPECT_EQ(step.statistics().replays, 2);
  EXPECT_THAT(fake_gpu::blocking_calls(), IsEmpty());
}

std::atomic<bool> is_to_fail{false};

/// An optimizer that fails before one replica's replay.
struct FailingSgd : FusedSgd {
  using FusedSgd::FusedSgd;
  void refresh_step() override {
    FusedSgd::refresh_step();
    const bool is_second = param_groups()[0].params()[0].device().index() == 1;
    if (!is_to_fail || !is_second) return;
    // The other replica has launched its replay by now.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    throw std::domain_error("planted");
  }
};

void step_of(ReplicaContext& replica, TanhNet& model, FailingSgd& sgd, const torch::Tensor& x) {
  sgd.zero_grad();
  model(x).square().sum().backward();
  replica.apply_gradients(sgd);
}

// Destroying a graph waits for its replay, which waits for the other rank until NCCL is told to abort.
TEST_F(NcclDeadlocks, AFailedRunReleasesAReplayThatWaitsForAnotherRank) {
  MirroredStrategy strategy({"gpu:0", "gpu:1"}, {.cross_device_ops = nccl_ops()});
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto sgd =
      strategy.scope([&](ReplicaContext& replica) { return FailingSgd(model[replica]->parameters(), 0.1); });
  const auto x = rows(strategy, 4);
  CudaGraph step(step_of, {.warm_up_runs = 4});
  for (int run = 0; run < 8; ++run) strategy.run(step, model, sgd, x);
  ASSERT_EQ(step.statistics().replays, 2);
  is_to_fail = true;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(strategy.run(step, model, sgd, x), std::domain_error);
  is_to_fail = false;
  // The fake gives up a kernel after 20 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lockstep
