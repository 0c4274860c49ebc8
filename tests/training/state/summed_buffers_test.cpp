// Buffers that are summed over the replicas, from scope() to a file and back on another number of replicas.
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/state/state_dict.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

constexpr int64_t kStart = 100;

/// Counts the examples that it has seen.
struct CountingImpl : torch::nn::Cloneable<CountingImpl>, AggregatesBuffers {
  CountingImpl() { reset(); }
  void reset() override { seen = register_buffer("seen", torch::full({}, kStart, torch::kLong)); }
  BufferAggregation buffer_aggregation(const std::string&) const override { return BufferAggregation::kSum; }
  void forward(int64_t examples) { seen += examples; }

  torch::Tensor seen;
};
TORCH_MODULE(Counting);

/// Each replica r sees r + 1 examples.
void count_once(Strategy& strategy, Mirrored<Counting>& model) {
  strategy.run([](ReplicaContext& replica, Counting& net) { net->forward(replica.replica_id() + 1); }, model);
}

/// Returns the number of examples that n replicas see in one call of count_once().
int64_t seen_by(int n) {
  return n * (n + 1) / 2;
}

int64_t total(Mirrored<Counting>& model) {
  model.eval();
  return model.primary()->seen.item<int64_t>();
}

Mirrored<Counting> counting(Strategy& strategy) {
  return strategy.scope([](ReplicaContext&) { return Counting(); });
}

TEST(SummedBuffers, StartFromTheModulesValueOnceOnAnyNumberOfReplicas) {
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpu_devices(n));
    auto made = counting(strategy);
    auto cloned = strategy.mirror(Counting());
    for (auto* model : {&made, &cloned}) {
      EXPECT_EQ(total(*model), kStart);
      count_once(strategy, *model);
      EXPECT_EQ(total(*model), kStart + seen_by(n));
      count_once(strategy, *model);
      EXPECT_EQ(total(*model), kStart + 2 * seen_by(n));
    }
  }
}

TEST(SummedBuffers, AreSummedOverAllWorkers) {
  expect_no_worker_failed(run_strategies({2, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    auto model = counting(strategy);
    count_once(strategy, model);
    model.eval();
    const int64_t expected = strategy.first_local_replica() == 0 ? kStart + seen_by(3) : 0;
    EXPECT_EQ(model.primary()->seen.item<int64_t>(), expected);
  }));
}

TEST(SummedBuffers, KeepTheirSumInAFileAndOnAnotherNumberOfReplicas) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy two(cpu_devices(2));
  auto saved = counting(two);
  count_once(two, saved);
  TrainingState state(two);
  state.add_model(saved);
  state.save(path, {});
  for (const int n : {1, 2, 3}) {
    MirroredStrategy strategy(cpu_devices(n));
    auto model = counting(strategy);
    count_once(strategy, model);  // is overwritten
    TrainingState resumed(strategy);
    resumed.add_model(model);
    resumed.load(path);
    if (n == 2) {
      EXPECT_EQ(model[1]->seen.item<int64_t>(), 2) << "as many replicas continue with their own parts";
    }
    count_once(strategy, model);
    EXPECT_EQ(total(model), kStart + seen_by(2) + seen_by(n)) << n << " replicas";
  }
}

TEST(SummedBuffers, OfPointersToModulesGoToTheReplicaWithNumberZero) {
  for (const int first : {0, 3}) {
    std::vector<ModulePointer> modules{Counting().ptr(), Counting().ptr()};
    load_state_dict(modules, first, {{"seen", torch::tensor(int64_t{7})}});
    const auto seen_by_replica = [&](size_t local) {
      return modules[local]->named_buffers()["seen"].item<int64_t>();
    };
    EXPECT_EQ(seen_by_replica(0), first == 0 ? 7 : 0);
    EXPECT_EQ(seen_by_replica(1), 0);
  }
}

TEST(SummedBuffers, LoadedWeightsCountOnce) {
  MirroredStrategy strategy(cpu_devices(2));
  auto model = counting(strategy);
  load_state_dict(model, {{"seen", torch::tensor(int64_t{7})}});
  EXPECT_EQ(total(model), 7);
  expect_no_worker_failed(run_strategies({1, 2}, [](MultiWorkerMirroredStrategy& workers) {
    auto everywhere = counting(workers);
    load_state_dict(everywhere, {{"seen", torch::tensor(int64_t{7})}});
    count_once(workers, everywhere);
    everywhere.eval();
    if (workers.first_local_replica() == 0) {
      EXPECT_EQ(everywhere.primary()->seen.item<int64_t>(), 7 + seen_by(3));
    }
  }));
}

}  // namespace
}  // namespace lockstep
