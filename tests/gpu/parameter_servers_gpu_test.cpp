// Workers of parameter servers that compute on GPUs; the servers' values stay on the host.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/support/table_job.h"

namespace lockstep {
namespace {

struct WorkerPlacement {
  std::string name;
  int workers = 1;
  std::vector<std::string> devices;  // of each process
  Reads reads = Reads::kAhead;
};

ParameterServerJob::Options job_on(const WorkerPlacement& placement, std::optional<uint64_t> max_staleness) {
  return {.num_workers = placement.workers,
          .devices = placement.devices,
          .parameters = {.partitioner = std::make_shared<FixedShardsPartitioner>(3),
                         .max_staleness = max_staleness}};
}

int gpus_needed_by(const WorkerPlacement& placement) {
  return placement.devices.back() == "gpu:1" ? 2 : 1;
}

class ParameterServersGpu : public testing::TestWithParam<WorkerPlacement> {};

INSTANTIATE_TEST_SUITE_P(
    Placements, ParameterServersGpu,
    testing::Values(WorkerPlacement{"OneGpu", 1, {"gpu:0"}},
                    WorkerPlacement{"OneGpuThatReadsWhenItLooksUp", 1, {"gpu:0"}, Reads::kWhenLookedUp},
                    WorkerPlacement{"TwoWorkersOnOneGpu", 2, {"gpu:0"}},
                    WorkerPlacement{"TwoGpus", 1, {"gpu:0", "gpu:1"}},
                    WorkerPlacement{
                        "TwoGpusThatReadWhenTheyLookUp", 1, {"gpu:0", "gpu:1"}, Reads::kWhenLookedUp},
                    WorkerPlacement{"CpuAndGpu", 1, {"cpu:0", "gpu:0"}},
                    WorkerPlacement{"GpuAndCpu", 1, {"gpu:0", "cpu:0"}}),
    [](const auto& info) { return info.param.name; });

TEST_P(ParameterServersGpu, TrainAsADenseTableOnTheCpu) {
  LOCKSTEP_NEEDS_GPUS(gpus_needed_by(GetParam()));
  for (const auto& make : {sgd(), adagrad_of_rows()}) {
    forget_races();
    TableJob tables(job_on(GetParam(), 0), make, GetParam().reads);
    tables.train(0, kTableSteps);
    const auto served = tables.served();
    tables.job().end();
    const auto alone = trained_alone<DenseNet>(seeded<DenseNet>, bags(), make, {.schedule = kTableSchedule});
    EXPECT_LT(largest_difference(served, alone), 1e-12);
    expect_no_races();
  }
}

// Meanwhile the workers read the next steps' values and send the last step's gradients.
TEST_P(ParameterServersGpu, StepEachByItselfWithoutRaces) {
  LOCKSTEP_NEEDS_GPUS(gpus_needed_by(GetParam()));
  forget_races();
  TableJob tables(job_on(GetParam(), std::nullopt), sgd(), GetParam().reads);
  const auto before = tables.served();
  tables.train(0, 2 * kTableSteps);
  const auto served = tables.served();
  tables.job().end();
  EXPECT_GT(largest_difference(served, before), 1e-3);
  for (const auto& values : served) EXPECT_TRUE(values.isfinite().all().item<bool>());
  expect_no_races();
}

TEST(ParameterServersGpuMemory, TheHostDoesNotWaitForValuesThatWereReadAhead) {
  LOCKSTEP_NEEDS_GPUS(1);
  TableJob tables({.num_workers = 1, .devices = {"gpu:0"}, .parameters = {.max_staleness = 0}}, sgd(),
                  Reads::kAhead, [](ParameterServerStrategy& strategy, TableTraining& training) {
                    auto options = training.options;
                    options.only_reads = true;
                    strategy.define_step(
                        "forward", training.batches,
                        [&](const StepSlot&, PerReplica<Example>& batch) {
                          const torch::NoGradGuard no_grad;
                          const HostMustNotWait no_wait;
                          strategy.run(
                              [](ReplicaContext&, TableNet& net, const Example& shard) { net(shard.data); },
                              training.model, batch);
                        },
                        options);
                  });
  tables.run("forward", 0, 3);
  tables.job().end();
}

}  // namespace
}  // namespace lockstep
