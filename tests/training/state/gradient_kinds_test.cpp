// Trainings with sparse gradients that no layer declares, continued in another process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

/// Looks rows up in a table of its own, whose gradients are sparse without a layer that says so. They arrive
/// between those of the layers, so that a slot for them moves the slots of the first layer.
struct LookUpNetImpl : torch::nn::Module {
  LookUpNetImpl() {
    first = register_module("first", torch::nn::Linear(6, 11));
    table = register_parameter("table", torch::empty({23, 11}));
    last = register_module("last", torch::nn::Linear(11, 3));
    // Not drawn: workers in threads share the process's generator. Small, so that the last bits of gradients
    // are not lost in a step.
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(torch::linspace(-0.05, 0.05, parameter.numel()).reshape(parameter.sizes()));
  }
  torch::Tensor forward(const torch::Tensor& rows) {
    const auto input = torch::sin(rows.unsqueeze(1) * torch::arange(1, 7, rows.options()) * 0.3);
    const auto hidden = torch::tanh(first(input));
    return last(hidden + torch::embedding(table, rows, -1, false, /*sparse=*/true));
  }
  torch::Tensor table;
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(LookUpNet);

torch::Tensor rows_of_step(int64_t step, int replica) {
  return torch::arange(5, torch::kLong).mul(replica + 2).add(7 * step).remainder(23);
}

/// Trains from where `from` left off (empty: the start) to `last_step`, saves to `to`, and returns the
/// parameters.
std::vector<torch::Tensor> train_look_ups(MultiWorkerMirroredStrategy& strategy, const std::string& from,
                                          int64_t last_step, int64_t steps_per_run, const std::string& to) {
  auto model = strategy.scope([](ReplicaContext&) { return LookUpNet(); });
  auto optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.03); });
  TrainingState state(strategy);
  state.add_model(model);
  state.add_optimizer("sgd", optimizer);
  const int64_t first_step = from.empty() ? 0 : state.load(from).step;
  for (int64_t done = first_step; done < last_step; done += steps_per_run) {
    strategy.run([&](ReplicaContext& replica) {
      auto& own = optimizer[replica];
      for (int64_t step = done; step < std::min(done + steps_per_run, last_step); ++step) {
        own.zero_grad();
        const torch::Tensor rows = rows_of_step(step, replica.replica_id()).to(replica.device());
        (model[replica]->forward(rows) - 1).square().sum().backward();
        replica.apply_gradients(own);
      }
    });
  }
  state.save(to, {.step = last_step});
  return values_of(model.primary()->parameters());
}

std::vector<std::vector<torch::Tensor>> train_look_ups_over_a_ring(const std::string& from, int64_t last_step,
                                                                   int64_t steps_per_run,
                                                                   const std::string& to) {
  std::vector<std::vector<torch::Tensor>> results(3);
  expect_no_worker_failed(run_strategies(
      {1, 1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
        results[rank] = train_look_ups(strategy, from, last_step, steps_per_run, to + std::to_string(rank));
      },
      [](int, WorkerSetUp& set_up) {
        set_up.options.buckets = {.first_bucket_bytes = 4000, .bucket_bytes = 4000};
        set_up.options.communication.exchange_algorithm = "ring";
      }));
  return results;
}

class GradientKindsOverARing : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(StepsPerRun, GradientKindsOverARing, ::testing::Values(1, 3));

TEST_P(GradientKindsOverARing, LetATrainingGoOnBitByBit) {
  constexpr int64_t kSteps = 5;
  const TemporaryFolder folder;
  const auto whole = train_look_ups_over_a_ring("", kSteps, GetParam(), folder.file("whole"));
  for (int64_t step = 1; step < kSteps; ++step) {
    const std::string part = folder.file("part" + std::to_string(step) + "-");
    train_look_ups_over_a_ring("", step, GetParam(), part);
    const auto resumed = train_look_ups_over_a_ring(part + "0", kSteps, GetParam(), folder.file("resumed"));
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(bit_equal(resumed[rank], whole[rank])) << "worker " << rank << ", resumed after " << step;
  }
}

/// Trains on two workers and returns each one's parameters. If `is_early`, worker 0 begins each step but the
/// first at the end of the run before, with the table's gradient, so that it launches nothing there.
std::vector<std::vector<torch::Tensor>> train_two_workers(bool is_early) {
  constexpr int64_t kSteps = 4;
  std::vector<std::vector<torch::Tensor>> results(2);
  const auto work = [&](MultiWorkerMirroredStrategy& strategy) {
    const int rank = strategy.cluster_resolver()->rank();
    auto model = strategy.scope([](ReplicaContext&) { return LookUpNet(); });
    auto optimizer = strategy.scope(
        [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
    for (int64_t step = 0; step < kSteps; ++step) {
      strategy.run([&](ReplicaContext& replica) {
        auto& own = optimizer[replica];
        auto& net = *model[replica];
        const auto begin = [&](int64_t next) {
          own.zero_grad();
          const torch::Tensor rows = rows_of_step(next, rank).to(replica.device());
          torch::embedding(net.table, rows, -1, false, true).square().mean().backward();
        };
        const bool is_ahead = is_early && rank == 0;
        if (!is_ahead || step == 0) begin(step);
        const auto input =
            torch::linspace(-1, 1, 12).mul(step + rank + 1).sin().reshape({2, 6}).to(replica.device());
        net.last(torch::tanh(net.first(input))).square().mean().backward();
        replica.apply_gradients(own);
        if (is_ahead && step + 1 < kSteps) begin(step + 1);
      });
    }
    results[static_cast<size_t>(rank)] = values_of(model.primary()->parameters());
  };
  expect_no_worker_failed(run_strategies({1, 1}, work, [](int, WorkerSetUp& set_up) {
    set_up.options.buckets = {.first_bucket_bytes = 300, .bucket_bytes = 1000};
  }));
  return results;
}

TEST(GradientKinds, AreTheSameOnWorkersThatBeginAStepInDifferentRuns) {
  const auto expected = train_two_workers(/*is_early=*/false);
  const auto early = train_two_workers(/*is_early=*/true);
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(bit_equal(early[rank], expected[rank])) << rank;
}

/// A net and its optimizer on two replicas. Its parameters are the table, then those of the layers.
struct LookUpTraining {
  LookUpTraining() {
    state.add_model(model);
    state.add_optimizer("sgd", optimizer);
  }

  void step() {
    strategy.run([&](ReplicaContext& replica) {
      auto& own = optimizer[replica];
      own.zero_grad();
      model[replica]
          ->forward(rows_of_step(0, replica.replica_id()).to(replica.device()))
          .square()
          .mean()
          .backward();
      replica.apply_gradients(own);
    });
  }
  std::vector<GradientKind> kinds() { return strategy.extended().gradient_kinds(optimizer.primary()); }
  bool has_slot_for_table() {
    return strategy.optimizer_group(optimizer.primary())->reducer(1)->buckets().has_slot(0);
  }

  MirroredStrategy strategy{cpu_devices(2), {.intra_op_threads = 1}};
  Mirrored<LookUpNet> model = strategy.scope([](ReplicaContext&) { return LookUpNet(); });
  Mirrored<torch::optim::SGD> optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
  TrainingState state{strategy};
};

constexpr auto kDense = GradientKind::kDense;
constexpr auto kSparse = GradientKind::kSparse;

/// Replaces the saved kinds, or leaves them out.
StateValue with_kinds(StateValue::Dict saved, const std::optional<StateValue::List>& kinds) {
  std::erase_if(saved.entries,
                [](const auto& entry) { return std::get<std::string>(entry.key) == "gradient_kinds"; });
  if (!kinds) return saved;
  StateValue::Dict of_optimizers;
  of_optimizers.add("sgd", *kinds);
  saved.add("gradient_kinds", std::move(of_optimizers));
  return saved;
}

TEST(GradientKinds, AreKnownAfterTheFirstStep) {
  LookUpTraining training;
  EXPECT_THAT(training.kinds(), IsEmpty());
  EXPECT_TRUE(training.has_slot_for_table());
  training.step();
  EXPECT_THAT(training.kinds(), ElementsAre(kSparse, kDense, kDense, kDense, kDense));
  EXPECT_FALSE(training.has_slot_for_table());
}

TEST(GradientKinds, AreTakenForTheFirstStepOfATrainingThatGoesOn) {
  LookUpTraining training;
  training.step();
  LookUpTraining resumed;
  resumed.state.restore(training.state.snapshot({.step = 1}), "file");
  resumed.strategy.run([](ReplicaContext&) {});  // runs begin with the layout
  EXPECT_FALSE(resumed.has_slot_for_table());
  EXPECT_EQ(resumed.kinds(), training.kinds());
}

TEST(GradientKinds, ThatWereNotKnownWhenSavedAreLearnt) {
  LookUpTraining training;
  LookUpTraining resumed;
  resumed.state.restore(training.state.snapshot({}), "file");
  resumed.step();
  EXPECT_THAT(resumed.kinds(), ElementsAre(kSparse, kDense, kDense, kDense, kDense));
}

TEST(GradientKinds, OfAFileOfAnEarlierVersionAreLearnt) {
  LookUpTraining training;
  training.step();
  LookUpTraining resumed;
  resumed.state.restore(with_kinds(training.state.snapshot({.step = 1}), std::nullopt), "file");
  resumed.step();
  EXPECT_THAT(resumed.kinds(), ElementsAre(kSparse, kDense, kDense, kDense, kDense));
  training.step();
  EXPECT_TRUE(bit_equal(values_of(resumed.model.primary()->parameters()),
                        values_of(training.model.primary()->parameters())));
}

TEST(GradientKinds, ThatFitNoParametersAreNamedInAStateFile) {
  LookUpTraining training;
  training.step();
  const auto saved = training.state.snapshot({.step = 1});
  const auto refusal_of = [&](const StateValue::List& kinds) {
    try {
      training.state.restore(with_kinds(saved, kinds), "file");
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(
      refusal_of({int64_t{2}, int64_t{1}}),
      HasSubstr("file: state['gradient_kinds']['sgd']: expected the kinds of the optimizer's gradients, "
                "but got"));
  EXPECT_THAT(
      refusal_of({int64_t{3}}),
      HasSubstr("file: state['gradient_kinds']['sgd'][0]: expected a kind of gradient, from 0 to 2, but "
                "got 3"));
}

}  // namespace
}  // namespace lockstep
