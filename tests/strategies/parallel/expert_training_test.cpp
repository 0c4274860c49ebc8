// Trainings of models whose ranks have different experts. Oracle: the same training on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/strategies/parallel/expert_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 20;
constexpr double kClose = 1e-12;

struct ExpertNetParts {
  const ReplicaAxis* experts = nullptr;  ///< null: all experts are on this device
  const ReplicaAxis* shards = nullptr;   ///< along which layers are sharded units
  std::optional<double> capacity_factor = std::nullopt;
  bool recomputes = false;
};

using BlockOutput = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

struct ExpertBlockImpl : torch::nn::Module {
  explicit ExpertBlockImpl(const ExpertNetParts& parts) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    experts = register_module("experts", wave_experts({.features = kFeatures,
                                                       .hidden_features = kHidden,
                                                       .num_experts = 8,
                                                       .num_shared_experts = 1,
                                                       .activation = ExpertActivation::kSwiGlu,
                                                       .capacity_factor = parts.capacity_factor}));
    if (parts.experts != nullptr) experts->cut(*parts.experts);
  }
  BlockOutput forward(const torch::Tensor& x) {
    const auto mixed = experts->forward(norm(x));
    return {x + mixed.output, mixed.balance_loss, mixed.z_loss};
  }

  torch::nn::LayerNorm norm{nullptr};
  MixtureOfExperts experts{nullptr};
};
TORCH_MODULE(ExpertBlock);

/// A language model without attention, with one layer of experts.
struct ExpertNetImpl : torch::nn::Module {
  explicit ExpertNetImpl(const ExpertNetParts& parts) : recomputes(parts.recomputes), block(parts) {
    embedding = register_module("embedding", wave_embedding(1));
    head = register_module("head", wave_linear(kFeatures, kVocabulary, 4));
    if (parts.shards == nullptr) {
      register_module("block", block);
      return;
    }
    unit = register_module("block", std::make_shared<ShardedModule>(block.ptr(), along(*parts.shards)));
    auto whole_head = head;
    head_unit =
        replace_module("head", std::make_shared<ShardedModule>(whole_head.ptr(), along(*parts.shards)));
  }

  /// Returns the losses of each example.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const auto compute = [block = block](const torch::Tensor& x) { return block.ptr()->forward(x); };
    const auto run = [this, compute](const torch::Tensor& x) {
      return unit != nullptr ? unit->call(compute, x) : compute(x);
    };
    const auto x = embedding(ids);
    const auto [y, balance, z] = recomputes ? recompute(run, x) : run(x);
    const auto project = [own = head](const torch::Tensor& in) { return own.ptr()->forward(in); };
    const auto logits = head_unit != nullptr ? head_unit->call(project, y) : project(y);
    const auto losses =
        at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::None);
    return losses.view(targets.sizes()).mean(1) + 0.1 * balance + 0.01 * z;
  }

  bool recomputes = false;
  torch::nn::Embedding embedding{nullptr};
  ExpertBlock block{nullptr};
  torch::nn::Linear head{nullptr};
  std::shared_ptr<ShardedModule> unit, head_unit;
};
TORCH_MODULE(ExpertNet);

struct ExpertStepResult {
  double loss = 0;
  torch::Tensor norm;
  torch::Tensor load, dropped;  ///< over all replicas
};

/// A step in two accumulated parts, with clipping. Replicas have different numbers of examples.
ExpertStepResult expert_step(ReplicaContext& replica, ExpertNet& net, torch::optim::AdamW& optimizer,
                             int step) {
  optimizer.zero_grad();
  constexpr int64_t kExamples = 10;
  const auto [ids, targets] = examples_of_step(step, kExamples);
  const int64_t replicas = replica.num_replicas();
  const int64_t begin = replica.replica_id() * kExamples / replicas;
  const int64_t end = (replica.replica_id() + 1) * kExamples / replicas;
  net->block->experts->reset_statistics();
  double loss = 0;
  const auto backward = [&, ids = ids, targets = targets](int64_t first, int64_t last) {
    const auto losses = net->forward(ids.slice(0, first, last), targets.slice(0, first, last));
    const auto sum = losses.sum() / kExamples;
    sum.backward();
    loss += sum.item<double>();
  };
  {
    const auto held = replica.accumulate();
    backward(begin, begin + 1);
  }
  backward(begin + 1, end);
  const auto statistics = net->block->experts->statistics();
  const auto sum = [&](const torch::Tensor& own) { return replica.all_reduce(ReduceOp::kSum, own); };
  return {loss, replica.apply_gradients(optimizer, {.clip_norm = 0.05}), sum(statistics.load),
          sum(statistics.dropped)};
}

struct ExpertRun {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::vector<ExpertStepResult> steps;
};

ExpertRun trained_on_one_device(int steps, std::optional<double> capacity_factor = std::nullopt) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1, .seed = 3});
  auto model = strategy.scope(
      [&](ReplicaContext&) { return ExpertNet(ExpertNetParts{.capacity_factor = capacity_factor}); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  ExpertRun run;
  for (int step = 0; step < steps; ++step)
    run.steps.push_back(strategy.run(expert_step, model, adam, step)[0]);
  for (const auto& item : model.primary()->named_parameters())
    run.parameters.emplace_back(item.key(), item.value().detach().clone());
  return run;
}

/// Returns the largest difference of a rank's parameters from its slices of the whole ones.
double difference_of_slices(ExpertNet& net, const ExpertRun& whole) {
  double most = 0;
  const auto own = net->named_parameters();
  TORCH_CHECK(own.size() == whole.parameters.size());
  for (const auto& [name, expected] : whole.parameters) {
    const auto& parameter = own[name];
    const auto* slice = sharded_parameter_of(parameter);
    const auto part =
        slice == nullptr ? expected : expected.flatten().narrow(0, slice->offset, slice->length);
    if (part.numel() > 0) most = std::max(most, (part - parameter).abs().max().item<double>());
  }
  return most;
}

StrategyOptions options_of(const Mesh& mesh) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256},
          .timeout = std::chrono::minutes(2)};
}

/// The axis "expert", or else the last one.
std::string axis_of_experts(const Mesh& mesh) {
  return mesh.has("expert") ? "expert" : mesh.axes().back().name;
}

struct HowToTrain {
  std::optional<double> capacity_factor = std::nullopt;
  bool recomputes = false;
  bool has_units = false;
};

void expect_training(Strategy& strategy, const ExpertRun& whole, const HowToTrain& how = {}) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    const auto& axis = replica.axis(axis_of_experts(strategy.mesh()));
    return ExpertNet(ExpertNetParts{.experts = &axis,
                                    .shards = how.has_units ? &axis : nullptr,
                                    .capacity_factor = how.capacity_factor,
                                    .recomputes = how.recomputes});
  });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (size_t step = 0; step < whole.steps.size(); ++step) {
    const auto results = strategy.run(expert_step, model, adam, static_cast<int>(step));
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    const auto& expected = whole.steps[step];
    ASSERT_NEAR(loss, expected.loss, kClose) << "step " << step;
    for (const auto& result : results.local_values()) {
      ASSERT_NEAR(result.norm.item<double>(), expected.norm.item<double>(), kClose) << "step " << step;
      ASSERT_TRUE(torch::equal(result.load, expected.load)) << result.load << expected.load;
      ASSERT_TRUE(torch::equal(result.dropped, expected.dropped)) << result.dropped << expected.dropped;
    }
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, ExpertNet& net) { return difference_of_slices(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

class ExpertTraining : public testing::TestWithParam<std::string> {
 protected:
  Mesh mesh() const { return parse_mesh(GetParam()); }
};

TEST_P(ExpertTraining, EqualsThatOnOneDevice) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  EXPECT_EQ(strategy.num_replicas_in_sync(), mesh().num_replicas());
  expect_training(strategy, trained_on_one_device(kSteps));
}

TEST_P(ExpertTraining, EqualsThatOnOneDeviceWithRecomputation) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  expect_training(strategy, trained_on_one_device(kSteps), {.recomputes = true});
}

TEST_P(ExpertTraining, DropsTheTokensThatOneDeviceDrops) {
  const auto whole = trained_on_one_device(kSteps, 0.5);
  for (const auto& step : whole.steps) ASSERT_GT(step.dropped.sum().item<int64_t>(), 0);
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  expect_training(strategy, whole, {.capacity_factor = 0.5});
}

TEST_P(ExpertTraining, EqualsThatOnOneDeviceOverWorkers) {
  const auto whole = trained_on_one_device(kSteps);
  const int ranks = mesh().size();
  for (const auto& layout :
       {std::vector<int>(static_cast<size_t>(ranks), 1), std::vector<int>{ranks / 2, ranks - ranks / 2}}) {
    SCOPED_TRACE(testing::Message() << layout.size() << " workers");
    expect_no_worker_failed(run_strategies(
        layout, [&](MultiWorkerMirroredStrategy& strategy) { expect_training(strategy, whole); },
        [&](int, WorkerSetUp& set_up) { set_up.options = options_of(mesh()); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ExpertTraining,
                         testing::Values("expert=2", "expert=4", "data=2,expert=2", "expert=2,data=2",
                                         "data=4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

class ExpertTrainingInUnits : public testing::TestWithParam<std::string> {};

TEST_P(ExpertTrainingInUnits, EqualsThatOnOneDevice) {
  const auto mesh = parse_mesh(GetParam());
  const auto whole = trained_on_one_device(kSteps);
  for (const bool recomputes : {false, true}) {
    auto options = options_of(mesh);
    options.sharding = {.stage = 3, .axis = axis_of_experts(mesh)};
    MirroredStrategy strategy(cpu_devices(mesh.size()), options);
    expect_training(strategy, whole, {.recomputes = recomputes, .has_units = true});
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ExpertTrainingInUnits,
                         testing::Values("expert=2", "data=2,expert=2", "data=4"), [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

TEST(ExpertTrainingTest, ARankThatThrowsReleasesTheOthersAndTheNextStepIsExact) {
  const Mesh mesh{{"data", 2}, {"expert", 2}};
  const auto whole = trained_on_one_device(3);
  MirroredStrategy strategy(cpu_devices(4), options_of(mesh));
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return ExpertNet(ExpertNetParts{.experts = &replica.axis("expert")}); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  const auto failing = [](ReplicaContext& replica, ExpertNet& net, torch::optim::AdamW& optimizer) {
    optimizer.zero_grad();
    if (replica.rank() == 3) throw std::runtime_error("rank 3 breaks");
    const auto [ids, targets] = examples_of_step(0, 2);
    net->forward(ids, targets).sum().backward();
    replica.apply_gradients(optimizer);
  };
  for (int step = 0; step < 3; ++step) {
    const auto message = message_of<std::runtime_error>([&] { strategy.run(failing, model, adam); });
    EXPECT_THAT(message, HasSubstr("rank 3 breaks"));
    strategy.run(expert_step, model, adam, step);
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, ExpertNet& net) { return difference_of_slices(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

TEST(ExpertTrainingTest, ShardedStateOfTheOptimizerIsRefused) {
  const Mesh mesh{{"expert", 2}};
  auto options = options_of(mesh);
  options.sharding = {.stage = 1};
  MirroredStrategy strategy(cpu_devices(2), options);
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return ExpertNet(ExpertNetParts{.experts = &replica.axis("expert")}); });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
              }),
              HasSubstr("stage 3 over it or stage 0"));
}

}  // namespace
}  // namespace lockstep
