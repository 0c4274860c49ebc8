// Fits by the Trainer over the test device and CPUs together.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/device/test_device_test_support.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/callbacks/divergence_check.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Makes the last element of the replica's first parameter larger by one unit in the last place, as rounding
/// does.
void round_otherwise(FitState& state, size_t replica) {
  const torch::NoGradGuard no_grad;
  auto last = state.objects().modules[replica]->parameters().front().view({-1}).narrow(0, 0, 1);
  last.fill_(std::nextafter(last.item<double>(), INFINITY));
}

/// Fits with checks, and returns the error of replicas that diverge.
std::string error_of_fit(const std::vector<std::string>& devices, size_t changed_replica) {
  MirroredStrategy strategy(devices, {.intra_op_threads = 1});
  torch::manual_seed(17);
  const auto data = examples_of_three_classes();
  Trainer trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); },
      [](const auto& parameters) { return FusedAdam(parameters, FusedAdamOptions(0.02)); }, cross_entropy);
  const auto change = [&](FitState& state) { round_otherwise(state, changed_replica); };
  return error_of<InconsistentReplicas>([&] {
    trainer.fit(data.data, data.target,
                {.epochs = 2,
                 .callbacks = {testing::after_step(3, change),
                               std::make_shared<DivergenceCheck>(DivergenceCheckOptions{.every_steps = 2})},
                 .batches = {.global_batch_size = kBatchSize}});
  });
}

class MixedFit : public TestDevice {};

TEST_F(MixedFit, ReplicasMayRoundAsTheirTypeOfDeviceDoes) {
  EXPECT_EQ(error_of_fit({"cpu:0", "testdevice:0"}, 1), "no error");
  EXPECT_EQ(error_of_fit({"testdevice:0", "cpu:0"}, 1), "no error");
}

TEST_F(MixedFit, ReplicasOnDevicesOfOneTypeMustNotDiffer) {
  EXPECT_THAT(error_of_fit({"cpu:0", "testdevice:0", "testdevice:1"}, 2),
              AllOf(HasSubstr("after step 4 replica 2 has other ones"), HasSubstr("than replica 1")));
  EXPECT_THAT(error_of_fit({"cpu:0", "testdevice:0", "cpu:1"}, 2),
              AllOf(HasSubstr("after step 4 replica 2 has other ones"), HasSubstr("than replica 0")));
}

}  // namespace
}  // namespace lockstep
