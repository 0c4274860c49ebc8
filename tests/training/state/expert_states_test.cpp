// Checkpoints, divergence checks and weights of models whose ranks have different experts. Any mesh reads any
// other's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "lockstep/tests/strategies/parallel/expert_net.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/tests/training/state/saved_tensors.h"
#include "lockstep/training/callbacks/divergence_check.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/state/memory_of_ranks.h"
#include "lockstep/training/state/state_dict.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

struct ExpertLayout {
  std::string name;
  std::string mesh;
  std::string axis;  ///< of the experts; empty: all ranks have all
  bool has_units = false;
  ShardingOptions sharding = {};  ///< of the parameters that are no experts
};

const std::vector<ExpertLayout> kExpertLayouts = {
    {"one device", "data=1", ""},
    {"data=4", "data=4", ""},
    {"data=4, experts too", "data=4", "data"},
    {"expert=2", "expert=2", "expert"},
    {"expert=4", "expert=4", "expert"},
    {"data=2,expert=2", "data=2,expert=2", "expert"},
    {"expert=2,data=2", "expert=2,data=2", "expert"},
    {"in units", "data=2,expert=2", "expert", true},
    {"stage 1", "data=2,expert=2", "expert", false, {1, "expert"}},
    {"stage 2 along data", "expert=2,data=2", "expert", false, {2, "data"}}};

StrategyOptions expert_strategy_of(const ExpertLayout& layout) {
  StrategyOptions options{.intra_op_threads = 1, .seed = 3, .mesh = parse_mesh(layout.mesh)};
  options.sharding = layout.has_units ? ShardingOptions{.stage = 3, .axis = layout.axis} : layout.sharding;
  return options;
}

/// A training on a layout, with its state.
struct TrainedExperts {
  TrainedExperts(Strategy& on, const ExpertLayout& layout)
      : strategy(on),
        model(on.scope([&](ReplicaContext& replica) {
          const auto* axis = layout.axis.empty() ? nullptr : &replica.axis(layout.axis);
          return ExpertNet(ExpertNetParts{.experts = axis, .shards = layout.has_units ? axis : nullptr});
        })),
        adam(on.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); })),
        state(on) {
    state.add_model(model);
    state.add_optimizer("adam", adam);
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) strategy.run(expert_step, model, adam, step);
  }
  std::vector<torch::optim::Optimizer*> optimizers() {
    std::vector<torch::optim::Optimizer*> all;
    for (auto& own : adam.local_values()) all.push_back(&own);
    return all;
  }
  void check() { check_divergence(strategy, 7, module_pointers(model.local_values()), optimizers()); }

  Strategy& strategy;
  Mirrored<ExpertNet> model;
  Mirrored<torch::optim::AdamW> adam;
  TrainingState state;
};

struct LocalExperts {
  explicit LocalExperts(const ExpertLayout& layout)
      : strategy(cpu_devices(parse_mesh(layout.mesh).size()), expert_strategy_of(layout)),
        training(strategy, layout) {}
  MirroredStrategy strategy;
  TrainedExperts training;
};

TEST(ExpertStates, ACheckpointOfEachMeshIsReadByEachOtherWithEqualBits) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const auto& layout : kExpertLayouts) {
    SCOPED_TRACE(layout.name);
    LocalExperts own(layout);
    own.training.train(0, 2);
    files.push_back(folder.path() + "/" + std::to_string(files.size()) + ".pt");
    own.training.state.save(files.back(), {});
    expect_saved_tensors(files.back(), files.front(), 1e-12);
  }
  for (size_t on = 0; on < files.size(); ++on) {
    LocalExperts own(kExpertLayouts[on]);
    for (size_t from = 0; from < files.size(); ++from) {
      if (!takes_pair(on, from, files.size())) continue;
      SCOPED_TRACE(::testing::Message() << files[from] << " on " << kExpertLayouts[on].name);
      const auto again = folder.path() + "/again.pt";
      own.training.state.load(files[from]);
      own.training.state.save(again, {});
      expect_saved_tensors(files[from], again);
    }
  }
}

TEST(ExpertStates, ATrainingResumesOnAnotherMesh) {
  const TemporaryFolder folder;
  const auto file = folder.path() + "/state.pt";
  const auto whole = experts_on_one_device(6);
  for (const auto& [begin, end] :
       std::vector<std::pair<size_t, size_t>>{{5, 4}, {4, 0}, {0, 6}, {7, 3}, {3, 9}, {9, 8}, {8, 0}}) {
    SCOPED_TRACE(::testing::Message() << kExpertLayouts[begin].name << " to " << kExpertLayouts[end].name);
    LocalExperts first(kExpertLayouts[begin]);
    first.training.train(0, 3);
    first.training.state.save(file, {});
    LocalExperts second(kExpertLayouts[end]);
    second.training.state.load(file);
    second.training.train(3, 6);
    for (auto& net : second.training.model.local_values()) EXPECT_LE(difference_of_slices(net, whole), 1e-12);
  }
}

TEST(ExpertStates, WorkersSaveWholeParameters) {
  const TemporaryFolder folder;
  const auto alone = folder.path() + "/alone.pt";
  const auto together = folder.path() + "/together.pt";
  const ExpertLayout layout{"", "data=2,expert=2", "expert"};
  LocalExperts local(layout);
  local.training.train(0, 2);
  local.training.state.save(alone, {});
  expect_no_worker_failed(run_strategies(
      {1, 1, 1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        TrainedExperts training(strategy, layout);
        training.train(0, 2);
        training.state.save(together, {});
      },
      [&](int, WorkerSetUp& set_up) { set_up.options = expert_strategy_of(layout); }));
  expect_saved_tensors(alone, together, 1e-12);  // sums over workers have another order
}

TEST(ExpertStates, SavedWeightsAreThoseOfOneDevice) {
  const TemporaryFolder folder;
  const auto weights_on = [&](const ExpertLayout& layout) {
    LocalExperts own(layout);
    own.training.train(0, 2);
    const auto file = folder.path() + "/weights.safetensors";
    save_weights(file, own.strategy, own.training.model);
    return load_weights(file);
  };
  const auto whole = weights_on(kExpertLayouts.front());
  const auto cut = weights_on({"", "data=2,expert=2", "expert"});
  expect_tensors(cut, whole, 1e-12);
}

TEST(ExpertStates, DivergenceCheckComparesRanksThatHoldTheSame) {
  LocalExperts own({"", "data=2,expert=2", "expert"});
  auto& training = own.training;
  training.train(0, 2);
  EXPECT_NO_THROW(training.check());
  const auto with_change = [&](torch::Tensor tensor, const std::string& ranks, const std::string& name) {
    const torch::NoGradGuard no_grad;
    const auto before = tensor.clone();
    tensor.flatten()[0] += 1e-9;
    EXPECT_THAT(message_of<InconsistentReplicas>([&] { training.check(); }),
                AllOf(HasSubstr(name), HasSubstr(ranks)));
    tensor.copy_(before);
    EXPECT_NO_THROW(training.check());
  };
  auto& nets = training.model.local_values();
  auto experts = nets[3]->block->experts->named_parameters();
  with_change(experts["up.weight"], "replica 3 has other ones", "experts.up.weight");  // as on rank 1
  with_change(experts["router.weight"], "replica 3 has other ones", "experts.router.weight");
  auto& state = static_cast<torch::optim::AdamWParamState&>(*training.adam.local_values()[2].state().at(
      nets[2]->block->experts->named_parameters()["down.weight"].unsafeGetTensorImpl()));
  with_change(state.exp_avg(), "replica 2 has other ones", "optimizer");  // as on rank 0
}

TEST(ExpertStates, CountInTheMemoryOfARankByItsPart) {
  LocalExperts own({"", "expert=4", "expert"});
  own.training.train(0, 2);
  const auto memory = memory_of_ranks(own.strategy, module_pointers(own.training.model.local_values()),
                                      own.training.optimizers());
  int64_t elements = 0;
  for (const auto& item : own.training.model.primary()->named_parameters()) {
    const auto* slice = sharded_parameter_of(item.value());
    elements += slice != nullptr ? slice->num_elements() / 4 : item.value().numel();
  }
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(double));
  ASSERT_EQ(memory.size(), 4U);
  for (const auto& rank : memory) {
    for (const auto& parts : {rank.measured, rank.predicted.value()}) {
      EXPECT_EQ(parts.parameters, bytes);
      EXPECT_EQ(parts.gradients, bytes);
      EXPECT_EQ(parts.optimizer_state, 2 * bytes);
      EXPECT_EQ(parts.gathered_units, 0);
    }
  }
}

TEST(ExpertStates, AreWholeBesideTheShardedStateOfOtherParameters) {
  for (const int stage : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << "stage " << stage);
    LocalExperts own({"", "expert=2,data=2", "expert", false, {stage, "data"}});
    own.training.train(0, 2);
    const auto memory = memory_of_ranks(own.strategy, module_pointers(own.training.model.local_values()),
                                        own.training.optimizers());
    int64_t experts = 0, others = 0;  // bytes
    for (const auto& item : own.training.model.primary()->named_parameters())
      (is_slice(item.value()) ? experts : others) += static_cast<int64_t>(item.value().nbytes());
    ASSERT_EQ(memory.size(), 4U);
    for (const size_t first : {0U, 2U}) {  // ranks that have the same experts
      const auto& one = memory[first].measured;
      const auto& other = memory[first + 1].measured;
      // Parts begin at whole cache lines.
      EXPECT_GE(one.parameters, experts + others);
      EXPECT_LE(one.parameters, experts + others + others / 4);
      EXPECT_EQ(*one.optimizer_state + *other.optimizer_state, 2 * (2 * experts + others));
      const int64_t gradients = one.gradients + other.gradients;
      const int64_t expected = 2 * experts + (stage == 1 ? 2 : 1) * others;
      EXPECT_GE(gradients, expected);
      EXPECT_LE(gradients, expected + others / 4);
    }
    const auto predicted = memory[3].predicted.value();
    EXPECT_EQ(predicted.parameters, experts + others);
    EXPECT_EQ(*predicted.optimizer_state, 2 * experts + others);
    EXPECT_EQ(predicted.gradients, experts + (stage == 1 ? others : others / 2));
  }
}

}  // namespace
}  // namespace lockstep
