// Checkpoints, divergence checks and weights of models that are cut along an axis. Any mesh reads any
// other's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/strategies/parallel/parallelize.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/strategies/parallel/units_net.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/tests/training/state/saved_tensors.h"
#include "lockstep/training/callbacks/divergence_check.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/state/internal/copied_states.h"
#include "lockstep/training/state/internal/model_copies.h"
#include "lockstep/training/state/internal/whole_tensors.h"
#include "lockstep/training/state/memory_of_ranks.h"
#include "lockstep/training/state/state_dict.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

StrategyOptions cut_options_of(const Mesh& mesh, int stage = 0) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .sharding = {.stage = stage},
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256}};
}

/// Cuts the layers of WholeNet.
const ParallelPlan kWholeNetPlan{{"embedding", RowwiseParallel{}},
                                 {"up", ColwiseParallel{}},
                                 {"down", RowwiseParallel{}},
                                 {"head", ColwiseParallel{.gather_output = true}}};

/// A training of one of the nets under a strategy. WholeNet is parallelized if the mesh has the axis
/// tensor.
template <typename Net>
struct Trained {
  explicit Trained(Strategy& on)
      : strategy(on),
        model(on.scope([&on](ReplicaContext& replica) {
          if constexpr (std::is_same_v<Net, WholeNet>) {
            WholeNet net;
            if (on.mesh().has("tensor")) parallelize(net, replica.axis("tensor"), kWholeNetPlan);
            return net;
          } else if constexpr (std::is_same_v<Net, UnitsNet>) {
            return make_units_net(replica, on.sharding().axis);
          } else {
            return ParallelNet(replica.axis("tensor"));
          }
        })),
        adam(on.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); })),
        state(on) {
    state.add_model(model);
    state.add_optimizer("adam", adam);
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) strategy.run(parallel_step<Net>, model, adam, step);
  }

  Strategy& strategy;
  Mirrored<Net> model;
  Mirrored<torch::optim::AdamW> adam;
  TrainingState state;
};

template <typename Net>
void with_training(const Mesh& mesh, const std::function<void(Trained<Net>&)>& work, int stage = 0) {
  MirroredStrategy strategy(cpu_devices(mesh.size()), cut_options_of(mesh, stage));
  Trained<Net> training(strategy);
  work(training);
}

/// Calls `work` with a training on each layout.
void with_each_layout(
    const std::function<void(const std::string& name, const std::function<void(const std::string&)>& save,
                             const std::function<void(const std::string&)>& load,
                             const std::function<void(int, int)>& train)>& work) {
  const auto call = [&](const std::string& name, auto& training) {
    SCOPED_TRACE(name);
    work(
        name, [&](const std::string& path) { training.state.save(path, {}); },
        [&](const std::string& path) { training.state.load(path); },
        [&](int from, int to) { training.train(from, to); });
  };
  with_training<WholeNet>({{"data", 1}}, [&](auto& training) { call("one device", training); });
  with_training<WholeNet>({{"data", 4}}, [&](auto& training) { call("data=4", training); });
  with_training<WholeNet>(
      {{"shard", 4}}, [&](auto& training) { call("shard=4, stage 2", training); }, 2);
  for (const char* mesh : {"tensor=2", "tensor=4", "data=2,tensor=2", "tensor=2,data=2"})
    with_training<ParallelNet>(parse_mesh(mesh), [&](auto& training) { call(mesh, training); });
  for (const char* mesh : {"shard=2,tensor=2", "tensor=2,shard=2"}) {
    for (const int stage : {1, 2}) {
      const auto name = c10::str(mesh, ", stage ", stage);
      with_training<ParallelNet>(
          parse_mesh(mesh), [&](auto& training) { call(name, training); }, stage);
    }
  }
  for (const char* mesh : {"data=2,tensor=2", "shard=2,tensor=2", "tensor=2,data=2", "data=1,tensor=2"}) {
    const auto name = c10::str(mesh, ", stage 3");
    with_training<UnitsNet>(
        parse_mesh(mesh), [&](auto& training) { call(name, training); }, 3);
  }
  for (const char* mesh : {"tensor=4", "data=2,tensor=2"}) {
    with_training<WholeNet>(parse_mesh(mesh),
                            [&](auto& training) { call(std::string("parallelized on ") + mesh, training); });
  }
}

TEST(CutParameters, ACheckpointOfEachMeshIsReadByEachOtherWithEqualBits) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  with_each_layout([&](const std::string&, const auto& save, const auto&, const auto& train) {
    train(0, 2);
    files.push_back(folder.path() + "/" + std::to_string(files.size()) + ".pt");
    save(files.back());
  });
  size_t layout = 0;
  with_each_layout([&](const std::string&, const auto& save, const auto& load, const auto&) {
    // Each layout begins with the file of another one.
    for (size_t i = 0; i < files.size(); ++i) {
      const size_t from = (layout + i) % files.size();
      if (!takes_pair(layout, from, files.size())) continue;
      SCOPED_TRACE(files[from]);
      const auto again = (folder.path() + "/again.pt");
      load(files[from]);
      save(again);
      expect_saved_tensors(files[from], again);
    }
    ++layout;
  });
}

TEST(CutParameters, ATrainingResumesOnAnotherMesh) {
  const TemporaryFolder folder;
  const auto file = (folder.path() + "/state.pt");
  with_training<ParallelNet>({{"data", 2}, {"tensor", 2}}, [&](auto& training) {
    training.train(0, 3);
    training.state.save(file, {});
  });
  const auto whole = trained_whole(2, 6);
  with_training<ParallelNet>({{"tensor", 4}}, [&](auto& training) {
    training.state.load(file);
    training.train(3, 6);
    for (auto& net : training.model.local_values()) EXPECT_LE(difference_of_parts(net, whole), 1e-12);
  });
  const auto expect_resumed = [&](auto& training) {
    training.state.load(file);
    training.train(3, 6);
    for (auto& net : training.model.local_values()) EXPECT_LE(difference_of_parts(net, whole), 1e-12);
  };
  for (const char* mesh : {"data=1", "tensor=4", "data=2,tensor=2"})  // whole, and parallelized
    with_training<WholeNet>(parse_mesh(mesh), expect_resumed);
  for (const int stage : {1, 2})
    with_training<ParallelNet>({{"shard", 2}, {"tensor", 2}}, expect_resumed, stage);
  with_training<UnitsNet>({{"data", 2}, {"tensor", 2}}, expect_resumed, 3);
}

TEST(CutParameters, WorkersSaveWholeParameters) {
  const TemporaryFolder folder;
  const auto alone = (folder.path() + "/alone.pt");
  const auto together = (folder.path() + "/together.pt");
  const Mesh mesh{{"data", 2}, {"tensor", 2}};
  with_training<ParallelNet>(mesh, [&](auto& training) {
    training.train(0, 2);
    training.state.save(alone, {});
  });
  expect_no_worker_failed(run_strategies(
      {1, 1, 1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        Trained<ParallelNet> training(strategy);
        training.train(0, 2);
        training.state.save(together, {});
      },
      [&](int, WorkerSetUp& set_up) { set_up.options = cut_options_of(mesh); }));
  expect_saved_tensors(alone, together);
}

TEST(CutParameters, WorkersSaveWholeParametersOfSlices) {
  const TemporaryFolder folder;
  const auto file = (folder.path() + "/together.pt");
  const auto again = (folder.path() + "/again.pt");
  const Mesh mesh{{"data", 2}, {"tensor", 2}};
  const auto save = [&]<typename Net>(MultiWorkerMirroredStrategy& strategy, const Net*) {
    Trained<Net> training(strategy);
    training.train(0, 2);
    training.state.save(file, {});
  };
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_no_worker_failed(run_strategies(
        {1, 1, 2},
        [&](MultiWorkerMirroredStrategy& strategy) {
          stage < 3 ? save(strategy, static_cast<const ParallelNet*>(nullptr))
                    : save(strategy, static_cast<const UnitsNet*>(nullptr));
        },
        [&](int, WorkerSetUp& set_up) { set_up.options = cut_options_of(mesh, stage); }));
    with_training<WholeNet>({{"data", 1}}, [&](auto& training) {
      training.state.load(file);
      EXPECT_LE(difference_of_parts(training.model.primary(), trained_whole(2, 2)), 1e-12);
      training.state.save(again, {});
    });
    expect_saved_tensors(file, again);
  }
}

TEST(CutParameters, OwnRandomStreamsOfRanksResume) {
  const TemporaryFolder folder;
  const auto file = (folder.path() + "/state.pt");
  const auto draw = [](Strategy& strategy) {
    return strategy
        .run([](ReplicaContext& replica) {
          const RankRandom own = replica.rank_random();
          return torch::rand({3});
        })
        .local_values();
  };
  std::vector<torch::Tensor> expected;
  with_training<ParallelNet>({{"tensor", 2}}, [&](auto& training) {
    draw(training.strategy);
    training.state.save(file, {});
    expected = draw(training.strategy);
  });
  with_training<ParallelNet>({{"tensor", 2}}, [&](auto& training) {
    training.state.load(file);
    const auto drawn = draw(training.strategy);
    for (size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(torch::equal(drawn[rank], expected[rank]));
  });
}

TEST(CutParameters, DivergenceCheckComparesRanksThatHoldTheSame) {
  const auto expect_comparison = [](auto& training) {
    const auto check = [&] {
      std::vector<torch::optim::Optimizer*> optimizers;
      for (auto& adam : training.adam.local_values()) optimizers.push_back(&adam);
      check_divergence(training.strategy, 7, module_pointers(training.model.local_values()), optimizers);
    };
    training.train(0, 2);
    EXPECT_NO_THROW(check());
    const auto with_change = [&](torch::Tensor tensor, const std::string& ranks, const std::string& name) {
      const torch::NoGradGuard no_grad;
      const auto before = tensor.clone();
      tensor.flatten()[0] += 1e-9;
      const auto message = message_of<InconsistentReplicas>(check);
      EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr(ranks)));
      tensor.copy_(before);
      EXPECT_NO_THROW(check());
    };
    auto& nets = training.model.local_values();
    with_change(nets[2]->up->weight, "replica 2 has other ones", "up.weight");      // as on rank 0
    with_change(nets[3]->norm->weight, "replica 3 has other ones", "norm.weight");  // as on all
  };
  with_training<ParallelNet>({{"data", 2}, {"tensor", 2}}, expect_comparison);
  with_training<ParallelNet>({{"context", 2}, {"tensor", 2}}, expect_comparison);
  for (const int stage : {1, 2})
    with_training<ParallelNet>({{"data", 2}, {"tensor", 2}}, expect_comparison, stage);
}

/// A net with a buffer that differs between replicas, as a BatchNorm's statistics do.
template <typename Net>
struct NotingImpl : torch::nn::Module {
  template <typename... Args>
  explicit NotingImpl(const Args&... args) {
    net = register_module("net", Net(args...));
    noted = register_buffer("noted", torch::zeros({2}));
  }
  Net net{nullptr};
  torch::Tensor noted;
};

template <typename Net>
std::shared_ptr<NotingImpl<Net>> make_noting(ReplicaContext& replica) {
  std::shared_ptr<NotingImpl<Net>> made;
  if constexpr (std::is_same_v<Net, WholeNet>) {
    made = std::make_shared<NotingImpl<Net>>();
  } else {
    made = std::make_shared<NotingImpl<Net>>(replica.axis("tensor"));
  }
  return made;
}

/// Calls `work` with a strategy and its models, one layout after another.
template <typename Work>
void with_noting_models(const Work& work) {
  const auto call = [&]<typename Net>(const char* mesh, const Net*) {
    SCOPED_TRACE(mesh);
    const Mesh parsed = parse_mesh(mesh);
    MirroredStrategy strategy(cpu_devices(parsed.size()), cut_options_of(parsed));
    auto model = strategy.scope([](ReplicaContext& replica) { return make_noting<Net>(replica); });
    work(strategy, model);
  };
  for (const char* mesh : {"data=1", "data=2"}) call(mesh, static_cast<const WholeNet*>(nullptr));
  for (const char* mesh : {"tensor=2", "data=2,tensor=2", "tensor=2,data=2"})
    call(mesh, static_cast<const ParallelNet*>(nullptr));
}

/// Averaged weights and EarlyStopping keep and save such copies.
TEST(CutParameters, CopiesOfAModelAreReadByEachMesh) {
  ParallelRun whole;  // of other values than a model begins with
  for (const auto& item : WholeNet()->named_parameters())
    whole.parameters.emplace_back(item.key(), item.value().detach() * 3 + 1);
  std::vector<StateValue> saved;
  with_noting_models([&](Strategy& strategy, auto& model) {
    strategy.run(
        [&](ReplicaContext& replica, auto& own) {
          const torch::NoGradGuard no_grad;
          own->noted.fill_(replica.replica_id() + 1);
          size_t at = 0;
          for (auto& item : own->net->named_parameters()) {
            const auto& values = whole.parameters.at(at++).second;
            const auto* part = sharded_parameter_of(item.value());
            torch::Tensor tensor = item.value();
            tensor.copy_(part == nullptr ? values : values.narrow(*part->dim, part->offset, part->length));
          }
        },
        model);
    const auto modules = module_pointers(model.local_values());
    const auto copies = save_copies(strategy, modules, copies_of_model(strategy, modules));
    const auto put_together = with_whole_tensors(strategy, copies, copies);
    const StateView view(saved.emplace_back(put_together), "copies");
    for (const auto& [name, values] : whole.parameters)
      EXPECT_TRUE(torch::equal(view.at("parameters").at("net." + name).tensor(), values)) << name;
    EXPECT_EQ(view.at("buffers").at("noted").tensor().size(0), strategy.num_replicas_in_sync());
  });
  for (const auto& state : saved) {
    const StateView view(state, "copies");
    const auto notes = view.at("buffers").at("noted").tensor();
    with_noting_models([&](Strategy& strategy, auto& model) {
      const auto modules = module_pointers(model.local_values());
      put_back_copies(strategy, modules, load_copies(strategy, modules, view));
      for (size_t rank = 0; rank < modules.size(); ++rank) {
        auto& own = model.local_values()[rank];
        EXPECT_EQ(difference_of_parts(own->net, whole), 0);
        const bool is_same_number = notes.size(0) == strategy.num_replicas_in_sync();
        EXPECT_TRUE(
            torch::equal(own->noted, is_same_number ? notes[strategy.replica_of(rank)] : notes.mean(0)));
      }
    });
  }
}

/// StepSnapshot keeps such copies.
TEST(CutParameters, StepsAreTakenBackByCopiesOnEachRank) {
  with_training<ParallelNet>({{"data", 2}, {"tensor", 2}}, [](auto& training) {
    const auto modules = module_pointers(training.model.local_values());
    training.train(0, 2);
    const auto copies = copies_of_model(training.strategy, modules);
    std::vector<CopiedStates> states;
    for (auto& adam : training.adam.local_values()) states.push_back(copied_states(adam));
    training.train(2, 4);
    const auto expected = copies_of_model(training.strategy, modules);
    training.train(4, 6);
    put_back_copies(training.strategy, modules, copies);
    for (size_t rank = 0; rank < states.size(); ++rank)
      put_back_states(training.adam.local_values()[rank], states[rank]);
    training.train(2, 4);
    const auto again = copies_of_model(training.strategy, modules);
    for (size_t rank = 0; rank < again.size(); ++rank) {
      for (size_t i = 0; i < again[rank].parameters.size(); ++i)
        EXPECT_TRUE(torch::equal(again[rank].parameters[i], expected[rank].parameters[i]));
    }
  });
}

TEST(CutParameters, CountInTheMemoryOfARankByItsPart) {
  for (const int ranks : {2, 4}) {
    with_training<ParallelNet>({{"tensor", ranks}}, [&](auto& training) {
      training.train(0, 2);
      std::vector<torch::optim::Optimizer*> optimizers;
      for (auto& adam : training.adam.local_values()) optimizers.push_back(&adam);
      const auto memory =
          memory_of_ranks(training.strategy, module_pointers(training.model.local_values()), optimizers);
      // The embedding, up with its bias, down's weight, and the head with its bias are cut; the bias of down
      // and the norm are whole.
      const int64_t cut = kVocabulary * kFeatures + (kFeatures + 1) * kHidden + kHidden * kFeatures +
                          (kFeatures + 1) * kVocabulary;
      const int64_t bytes = (cut / ranks + 3 * kFeatures) * static_cast<int64_t>(sizeof(double));
      ASSERT_EQ(memory.size(), static_cast<size_t>(ranks));
      for (const auto& rank : memory) {
        for (const auto& parts : {rank.measured, rank.predicted.value()}) {
          EXPECT_EQ(parts.parameters, bytes);
          EXPECT_EQ(parts.gradients, bytes);
          EXPECT_EQ(parts.optimizer_state, 2 * bytes);
          EXPECT_EQ(parts.gathered_units, 0);
        }
      }
    });
  }
}

TEST(CutParameters, CountInTheMemoryOfARankBySlices) {
  const auto expect_prediction = [](auto& training) {
    training.train(0, 2);
    std::vector<torch::optim::Optimizer*> optimizers;
    for (auto& adam : training.adam.local_values()) optimizers.push_back(&adam);
    const auto memory =
        memory_of_ranks(training.strategy, module_pointers(training.model.local_values()), optimizers);
    constexpr int64_t kPadding = 10 * 64;  // of buckets or units, and slices of unequal lengths
    for (const auto& rank : memory) {
      ASSERT_TRUE(rank.predicted);
      EXPECT_NEAR(static_cast<double>(rank.measured.parameters),
                  static_cast<double>(rank.predicted->parameters), kPadding);
      EXPECT_NEAR(static_cast<double>(rank.measured.gradients),
                  static_cast<double>(rank.predicted->gradients), kPadding);
      EXPECT_NEAR(static_cast<double>(rank.measured.optimizer_state.value()),
                  static_cast<double>(rank.predicted->optimizer_state.value()), 2 * kPadding);
    }
  };
  for (const int stage : {1, 2})
    with_training<ParallelNet>({{"shard", 2}, {"tensor", 2}}, expect_prediction, stage);
  with_training<UnitsNet>({{"shard", 2}, {"tensor", 2}}, expect_prediction, 3);
}

TEST(CutParameters, SaveWeightsRefusesParts) {
  with_training<ParallelNet>({{"tensor", 2}}, [](auto& training) {
    const TemporaryFolder folder;
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  save_weights((folder.path() + "/weights.safetensors"),
                               state_dict(*training.model.primary()));
                }),
                HasSubstr("whole parameters"));
  });
}

}  // namespace
}  // namespace lockstep
