// Checkpoints of optimizers whose state is sharded: any layout of replicas reads any other's.
#include "lockstep/training/state/internal/sharded_states.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

struct Layout {
  int replicas = 1;
  Mesh mesh;
  int stage = 0;

  std::string str() const { return mesh.str() + " at stage " + std::to_string(stage); }
  StrategyOptions options() const {
    return {.intra_op_threads = 1,
            .seed = 1,
            .mesh = mesh,
            .sharding = {.stage = stage < 3 ? stage : 0},  // units are sharded by themselves
            .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256}};
  }
};

std::vector<Layout> layouts() {
  return {{1, Mesh{{"data", 1}}, 0},
          {2, Mesh{{"data", 2}}, 0},
          {2, Mesh{{"shard", 2}}, 1},
          {2, Mesh{{"shard", 2}}, 2},
          {4, Mesh{{"shard", 4}}, 2},
          {4, Mesh{{"data", 2}, {"shard", 2}}, 1},
          {4, Mesh{{"data", 2}, {"shard", 2}}, 2},
          {2, Mesh{{"shard", 2}}, 3},
          {4, Mesh{{"shard", 4}}, 3},
          {4, Mesh{{"data", 2}, {"shard", 2}}, 3},
          {4, Mesh{{"shard", 2}, {"data", 2}}, 3}};
}

/// Has parameters in channels-last order, a frozen one, and fewer elements in some than replicas.
torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::Flatten(), torch::nn::Linear(16, 3),
                            torch::nn::Linear(3, 1));
  auto weight = net[0]->as<torch::nn::Conv2d>()->weight;
  weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
  net[3]->as<torch::nn::Linear>()->bias.set_requires_grad(false);
  return net;
}

/// Makes an optimizer of two groups with different weight decays.
template <typename Optimizer, typename Options>
Optimizer make_optimizer(const std::vector<torch::Tensor>& parameters, const Options& options) {
  auto decayed = options;
  decayed.weight_decay(0.1);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>(parameters.begin(), parameters.begin() + 3),
                      std::make_unique<Options>(decayed));
  groups.emplace_back(std::vector<torch::Tensor>(parameters.begin() + 3, parameters.end()),
                      std::make_unique<Options>(options));
  return Optimizer(groups, options);
}

struct FusedAdamWCase {
  using Optimizer = FusedAdamW;
  static Optimizer make(const std::vector<torch::Tensor>& parameters) {
    return make_optimizer<Optimizer>(parameters, FusedAdamWOptions(0.01));
  }
};
struct SgdCase {
  using Optimizer = torch::optim::SGD;
  static Optimizer make(const std::vector<torch::Tensor>& parameters) {
    return make_optimizer<Optimizer>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  }
};
struct AdagradCase {  // whose constructor makes its state
  using Optimizer = torch::optim::Adagrad;
  static Optimizer make(const std::vector<torch::Tensor>& parameters) {
    return make_optimizer<Optimizer>(parameters, torch::optim::AdagradOptions(0.1));
  }
};

torch::nn::Sequential make_model(ReplicaContext&, const torch::nn::Sequential*) {
  return make_net();
}
ShardedSequential make_model(ReplicaContext& replica, const ShardedSequential*) {
  return shard_elements(make_net(), along(replica.axis("shard")));
}

template <typename Case, typename Model = torch::nn::Sequential>
class Training {
 public:
  using Optimizer = typename Case::Optimizer;

  explicit Training(Strategy& made_by) : strategy(made_by), state(made_by) {
    model.emplace(strategy.scope(
        [](ReplicaContext& replica) { return make_model(replica, static_cast<const Model*>(nullptr)); }));
    optimizer.emplace(
        strategy.scope([&](ReplicaContext& replica) { return Case::make((*model)[replica]->parameters()); }));
    state.add_model(*model);
    state.add_optimizer("optimizer", *optimizer);
  }

  void run_steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      strategy.run(
          [](ReplicaContext& replica, Model& net, Optimizer& own, int now) {
            auto generator =
                at::detail::createCPUGenerator(static_cast<uint64_t>(100 * now + replica.replica_id()));
            own.zero_grad();
            net->forward(torch::randn({2, 3, 4, 4}, generator).to(replica.device()))
                .square()
                .sum()
                .backward();
            replica.apply_gradients(own);
          },
          *model, *optimizer, step);
    }
  }

  /// The parameters and the optimizer's state, by name.
  NamedTensors tensors() {
    NamedTensors all;
    const auto snapshot = state.snapshot({});
    for (const char* key : {"model", "optimizers"}) {
      visit_tensors(*snapshot.find(key), [&](const std::string& name, const torch::Tensor& tensor) {
        all.emplace_back(std::string(key) + "." + name, tensor.cpu().clone());
      });
    }
    return all;
  }

  Strategy& strategy;
  std::optional<Mirrored<Model>> model;
  std::optional<Mirrored<Optimizer>> optimizer;
  TrainingState state;
};

void expect_equal(const NamedTensors& given, const NamedTensors& expected) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(given[i].first, expected[i].first);
    EXPECT_TRUE(torch::equal(given[i].second, expected[i].second)) << given[i].first;
  }
}

/// Calls `function` with the layout's training.
template <typename Case, typename Function>
void with_training(const Layout& layout, const Function& function) {
  MirroredStrategy strategy(cpu_devices(layout.replicas), layout.options());
  if (layout.stage < 3) {
    Training<Case> training(strategy);
    function(training);
  } else {
    Training<Case, ShardedSequential> training(strategy);
    function(training);
  }
}

template <typename Case>
class ShardedStates : public ::testing::Test {};

using Cases = ::testing::Types<FusedAdamWCase, SgdCase, AdagradCase>;
TYPED_TEST_SUITE(ShardedStates, Cases);

TYPED_TEST(ShardedStates, OfEachLayoutAreReadByEachOther) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/state.pt";
  for (const Layout& writer : layouts()) {
    torch::manual_seed(1);
    NamedTensors expected;
    NamedTensors after;
    with_training<TypeParam>(writer, [&](auto& written) {
      written.run_steps(0, 3);
      written.state.save(path, {.step = 3});
      expected = written.tensors();
      written.run_steps(3, 5);
      after = written.tensors();
    });
    // Whole parameters, and the state of each that is trained.
    EXPECT_GE(expected.size(), 6U + 5U);
    for (const Layout& reader : layouts()) {
      SCOPED_TRACE(writer.str() + " read by " + reader.str());
      torch::manual_seed(2);
      with_training<TypeParam>(reader, [&](auto& read) {
        read.run_steps(7, 9);  // leaves a state of its own, which is replaced
        read.state.load(path);
        expect_equal(read.tensors(), expected);
        if (reader.replicas != writer.replicas) return;
        read.run_steps(3, 5);
        const NamedTensors resumed = read.tensors();
        ASSERT_EQ(resumed.size(), after.size());
        const bool is_same_layout = reader.str() == writer.str();
        for (size_t i = 0; i < after.size(); ++i) {
          const auto difference = (resumed[i].second - after[i].second).abs().max().template item<double>();
          EXPECT_LE(difference, is_same_layout ? 0 : 1e-5) << after[i].first;
        }
      });
    }
  }
}

TEST(ShardedStatesTest, OfWorkersEqualThoseOfOneProcess) {
  const TemporaryFolder folder;
  for (const int stage : {1, 2}) {
    expect_no_worker_failed(run_strategies(
        {1, 2, 1},
        [&](MultiWorkerMirroredStrategy& strategy) {
          Training<FusedAdamWCase> training(strategy);
          training.state.save(folder.path() + "/start.pt", {});
          training.run_steps(0, 3);
          training.state.save(folder.path() + "/end.pt", {.step = 3});
        },
        [&](int, WorkerSetUp& set_up) {
          set_up.options.mesh = {{"data", 2}, {"shard", 2}};
          set_up.options.sharding.stage = stage;
          set_up.options.seed = 1;
        }));
    MirroredStrategy strategy(cpu_devices(4), Layout{4, Mesh{{"data", 4}}, 0}.options());
    Training<FusedAdamWCase> whole(strategy);
    whole.state.load(folder.path() + "/start.pt");
    whole.run_steps(0, 3);
    const NamedTensors expected = whole.tensors();
    whole.state.load(folder.path() + "/end.pt");
    const NamedTensors given = whole.tensors();
    ASSERT_EQ(given.size(), expected.size());
    for (size_t i = 0; i < given.size(); ++i) {
      EXPECT_EQ(given[i].first, expected[i].first);
      EXPECT_TRUE(torch::allclose(given[i].second, expected[i].second, 1e-5, 1e-7)) << given[i].first;
    }
  }
}

}  // namespace
}  // namespace lockstep
