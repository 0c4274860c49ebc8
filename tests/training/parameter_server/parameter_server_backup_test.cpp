#include "lockstep/training/parameter_server/parameter_server_backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/rpc/rpc_client.h"
#include "lockstep/tests/runtime/cluster/job_token.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/training/parameter_server/internal/server_checkpoint.h"
#include "lockstep/training/parameter_server/serve_parameters.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::TemporaryFolder;

constexpr int64_t kSteps = kEpochs * ((kExamples + kBatchSize - 1) / kBatchSize);

OptimizerPointer make_adam(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
}

/// A process's part of the training that trained_alone() does.
struct ServedTraining {
  explicit ServedTraining(ParameterServerStrategy& strategy)
      : model(strategy.scope([](ReplicaContext&) {
          torch::manual_seed(17);
          return make_tanh_net();
        })),
        optimizer(strategy.scope(
            [&](ReplicaContext& replica) { return make_adam(model[replica]->parameters()); })) {
    const auto data = examples_of_three_classes();
    const auto batches =
        strategy.step_batches(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
    strategy.define_step("train", [&strategy, this, batches](const StepSlot& step) {
      strategy.run(plain_step<TanhNet>, model, optimizer, batches.at(step));
    });
  }
  Mirrored<TanhNet> model;
  Mirrored<OptimizerPointer> optimizer;
};

struct JobOptions {
  int num_servers = 2;
  int num_workers = 2;
  std::optional<uint64_t> max_staleness = 0;
  std::string folder;  // the servers' folder
};

/// A whole job in threads: its servers, its workers and its chief, which calls `chief(strategy, training)`
/// once all workers are there. Afterwards all of them end.
void run_job(const JobOptions& options,
             const std::function<void(ParameterServerStrategy&, ServedTraining&)>& chief) {
  std::mutex one_at_a_time;  // guards the process's random state
  TcpListener chief_socket("127.0.0.1", 0);
  std::deque<TcpListener> sockets;
  ClusterSpec::Jobs jobs{{"chief", {{0, {"127.0.0.1", chief_socket.port()}}}}};
  for (int i = 0; i < options.num_servers; ++i)
    jobs["ps"][i] = {"127.0.0.1", sockets.emplace_back("127.0.0.1", 0).port()};
  for (int i = 0; i < options.num_workers; ++i) jobs["worker"][i] = {"127.0.0.1", i + 1};
  const ClusterSpec spec(jobs);
  const auto resolver = [&](const std::string& type, int task) {
    return std::make_shared<SimpleClusterResolver>(spec, type, task);
  };
  const auto cluster = [](std::optional<int> socket) {
    ClusterOptions own{.token = kJobToken, .listening_socket = socket};
    own.join_timeout = std::chrono::seconds(30);
    return own;
  };
  const auto make_strategy = [&](const std::string& type, int task, std::optional<int> socket) {
    return std::make_unique<ParameterServerStrategy>(
        resolver(type, task), cpu_devices(1),
        ParameterServerOptions{.max_staleness = options.max_staleness, .on_message = [](const auto&) {}},
        StrategyOptions{.intra_op_threads = 1}, cluster(socket));
  };
  const auto prepare = [&](ParameterServerStrategy& strategy) {
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    return std::make_unique<ServedTraining>(strategy);
  };
  std::vector<std::future<void>> others;
  for (int i = 0; i < options.num_servers; ++i) {
    others.push_back(
        std::async(std::launch::async, [&, i, socket = sockets[static_cast<size_t>(i)].release()] {
          serve_parameters(resolver("ps", i),
                           {.backup_dir = options.folder, .on_message = [](const std::string&) {}},
                           cluster(socket));
        }));
  }
  for (int i = 0; i < options.num_workers; ++i) {
    others.push_back(std::async(std::launch::async, [&, i] {
      const auto strategy = make_strategy("worker", i, std::nullopt);
      const auto training = prepare(*strategy);
      strategy->coordinator().serve();
    }));
  }
  const auto strategy = make_strategy("chief", 0, chief_socket.release());
  const auto training = prepare(*strategy);
  // A worker that arrives after the job has ended would rightly fail.
  while (strategy->coordinator().workers().size() < static_cast<size_t>(options.num_workers))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::exception_ptr error;
  try {
    chief(*strategy, *training);
  } catch (...) {
    error = std::current_exception();
  }
  strategy->end();
  for (auto& other : others) other.get();
  if (error) std::rethrow_exception(error);
}

std::vector<torch::Tensor> served_values(ParameterServerStrategy& chief, ServedTraining& training) {
  chief.run([](ReplicaContext&, TanhNet&) {}, training.model);
  return values_of(training.model.primary()->parameters());
}

struct Outcome {
  int64_t first_step = -1;
  int64_t num_saved = 0;
  std::vector<torch::Tensor> parameters;
  UpdateCounts counts;
};

/// Resumes from the last checkpoint and trains to step `end`. With `stops_at`, the chief is gone after that
/// step.
Outcome train(const JobOptions& options, const ParameterServerBackupOptions& backup_options, int64_t end,
              std::optional<int64_t> stops_at = std::nullopt) {
  Outcome outcome;
  const auto chief = [&](ParameterServerStrategy& strategy, ServedTraining& training) {
    ParameterServerBackup backup(strategy, backup_options);
    outcome.first_step = backup.first_step();
    strategy.run_steps("train", backup.first_step(), end,
                       [&](int64_t step, const std::vector<ClosureValues>&) {
                         backup.after_step(step);
                         if (step == stops_at) throw std::runtime_error("gone");
                       });
    backup.finish();
    outcome.num_saved = backup.num_saved();
    outcome.counts = strategy.update_counts();
    outcome.parameters = served_values(strategy, training);
  };
  if (stops_at) {
    EXPECT_EQ(message_of<std::runtime_error>([&] { run_job(options, chief); }), "gone");
  } else {
    run_job(options, chief);
  }
  return outcome;
}

TEST(ParameterServerBackup, AJobGoesOnFromItsLastCheckpointByteForByte) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), make_adam);
  const JobOptions options{.folder = path};
  const ParameterServerBackupOptions backup{.folder = path, .every = SaveInterval::steps(3)};
  EXPECT_EQ(train(options, backup, kSteps, 7).first_step, 0);
  EXPECT_EQ(list_checkpoints(path).front(), path + "/checkpoint-000000000006");
  const auto resumed = train(options, backup, kSteps);
  EXPECT_EQ(resumed.first_step, 6);
  EXPECT_LT(largest_difference(resumed.parameters, alone), 1e-12);
  // Like a job that nothing has stopped, on other servers.
  const TemporaryFolder other;
  const auto undisturbed = train({.num_servers = 3, .folder = other.path()},
                                 {.folder = other.path(), .every = SaveInterval::minutes(1e6)}, kSteps);
  EXPECT_EQ(undisturbed.num_saved, 2);  // at the beginning and at the end
  EXPECT_EQ(largest_difference(resumed.parameters, undisturbed.parameters), 0);
}

TEST(ParameterServerBackup, OtherNumbersOfServersGoOn) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  const auto alone = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), make_adam);
  const ParameterServerBackupOptions backup{.folder = path, .every = SaveInterval::steps(1)};
  train({.num_servers = 3, .folder = path}, backup, 4);
  EXPECT_EQ(train({.num_servers = 1, .folder = path}, backup, 9).first_step, 4);
  const auto last = train({.num_servers = 2, .num_workers = 3, .folder = path}, backup, kSteps);
  EXPECT_EQ(last.first_step, 9);
  EXPECT_LT(largest_difference(last.parameters, alone), 1e-12);
  EXPECT_THAT(list_checkpoints(path), SizeIs(2));  // the number of checkpoints kept
}

TEST(ParameterServerBackup, EachStepIsAppliedOnceThoughShardsAreSavedAtDifferentMoments) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  const JobOptions options{.max_staleness = std::nullopt, .folder = path};
  const ParameterServerBackupOptions backup{.folder = path, .every = SaveInterval::steps(2)};
  // Workers are ahead of the chief, so a checkpoint has more steps than it says.
  train(options, backup, kSteps, 5);
  const auto resumed = train(options, backup, kSteps);
  EXPECT_GE(resumed.first_step, 2);
  EXPECT_LE(resumed.first_step, 6);
  ServerCheckpoint last({.folder = path, .num_servers = 1});
  for (const auto& [name, rows] : std::vector<std::pair<std::string, int64_t>>{
           {"first.weight", 5}, {"first.bias", 5}, {"second.weight", 3}, {"second.bias", 3}}) {
    const auto saved = last.find(name, {0, rows});
    ASSERT_TRUE(saved.has_value()) << name;
    EXPECT_EQ(saved->version, static_cast<uint64_t>(kSteps)) << name;
  }
}

TEST(ParameterServerBackup, AFullDiskIsAMessageAndTheTrainingGoesOn) {
  for (const std::optional<uint64_t> staleness : {std::optional<uint64_t>(0), std::optional<uint64_t>()}) {
    const TemporaryFolder folder;
    const JobOptions options{.max_staleness = staleness, .folder = folder.path()};
    std::vector<std::string> messages;
    const auto log = [&](const std::string& line) { messages.push_back(line); };
    run_job(options, [&](ParameterServerStrategy& strategy, ServedTraining&) {
      ParameterServerBackup backup(
          strategy, {.folder = folder.path(), .every = SaveInterval::steps(2), .on_message = log});
      const auto save = [&](int64_t step, const std::vector<ClosureValues>&) { backup.after_step(step); };
      strategy.run_steps("train", 0, 2, save);
      {
        const testing::FileSizeLimit limit(200);
        // The checkpoint of the first steps may still be written, as a whole or not at all.
        strategy.run_steps("train", 2, 7, save);
        EXPECT_THAT(message_of<std::system_error>([&] { backup.finish(); }),
                    AllOf(HasSubstr("ps "), HasSubstr("cannot write"), HasSubstr(folder.path())));
      }
      const auto kept = testing::names_in(folder.path());
      EXPECT_THAT(kept, Each(AnyOf(StartsWith("checkpoint-"), Eq("lock"))));
      EXPECT_THAT(kept, Contains(StartsWith("checkpoint-")));
      if (staleness) {
        EXPECT_THAT(messages, SizeIs(2));  // after steps 4 and 6
        EXPECT_THAT(messages, Each(StartsWith("a checkpoint could not be saved, training continues: ps ")));
      }
      backup.finish();
    });
    EXPECT_EQ(list_checkpoints(folder.path()).front(), folder.path() + "/checkpoint-000000000007");
  }
}

TEST(ParameterServerBackup, ServersThatGoOnFromDifferentCheckpointsAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  const JobOptions options{.folder = path};
  const ParameterServerBackupOptions backup{.folder = path, .every = SaveInterval::steps(2)};
  train(options, backup, 4);
  // Server 1 finds its part of the newest checkpoint damaged; server 0 does not read that part.
  const std::string damaged = list_checkpoints(path).front() + "/server-1-shard-0.pt";
  testing::write_text(damaged, testing::read_text(damaged).replace(100, 1, "X"));
  EXPECT_THAT(message_of<CheckpointError>([&] {
                run_job(options, [&](ParameterServerStrategy& strategy, ServedTraining&) {
                  ParameterServerBackup(strategy, backup);
                });
              }),
              AllOf(HasSubstr(path), HasSubstr("checkpoint-000000000002 and checkpoint-000000000004")));
}

TEST(ParameterServerBackup, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  run_job({}, [&](ParameterServerStrategy& strategy, ServedTraining&) {
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  ParameterServerBackup(strategy, {.folder = path, .every = SaveInterval::epochs(1)});
                }),
                HasSubstr("expected steps or minutes"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { ParameterServerBackup(strategy, {.folder = path}); }),
                HasSubstr("ps 0"));  // has no folder
  });
  EXPECT_THAT(list_checkpoints(path), ElementsAre());
  const ClusterSpec spec({{"chief", {{0, {"127.0.0.1", 1}}}},
                          {"ps", {{0, {"127.0.0.1", 2}}}},
                          {"worker", {{0, {"127.0.0.1", 3}}}}});
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                serve_parameters(std::make_shared<SimpleClusterResolver>(spec, "worker", 0), {}, {});
              }),
              HasSubstr("expected a ps task, but got worker 0"));
}

/// A cluster whose only server listens on this socket.
std::shared_ptr<const ClusterResolver> sole_server(const TcpListener& socket) {
  return std::make_shared<SimpleClusterResolver>(ClusterSpec({{"chief", {{0, {"127.0.0.1", 1}}}},
                                                              {"ps", {{0, {"127.0.0.1", socket.port()}}}},
                                                              {"worker", {{0, {"127.0.0.1", 3}}}}}),
                                                 "ps", 0);
}

TEST(ServeParameters, EndsWhereNobodyComes) {
  TcpListener socket("127.0.0.1", 0);
  const auto resolver = sole_server(socket);
  ClusterOptions cluster{.token = kJobToken, .listening_socket = socket.release()};
  cluster.join_timeout = std::chrono::milliseconds(300);
  std::vector<std::string> lines;
  EXPECT_THAT(message_of<ClusterError>([&] {
                serve_parameters(resolver,
                                 {.on_message = [&](const std::string& line) { lines.push_back(line); }},
                                 cluster);
              }),
              HasSubstr("no worker has been connected for 0.3 s"));
  EXPECT_THAT(lines, ElementsAre(HasSubstr("ps 0 serves at 127.0.0.1:")));
}

TEST(ServeParameters, LeavesOnceNobodyIsConnected) {
  TcpListener socket("127.0.0.1", 0);
  const int port = socket.port();
  std::atomic<bool> is_leaving = false;
  auto serving = std::async(
      std::launch::async,
      [&, resolver = sole_server(socket),
       cluster = ClusterOptions{.token = kJobToken, .listening_socket = socket.release()}] {
        serve_parameters(
            resolver,
            {.on_message = [](const std::string&) {}, .is_leaving = [&] { return is_leaving.load(); }},
            cluster);
      });
  std::optional<RpcClient> client(std::in_place,
                                  RpcClientOptions{.name = "ps 0",
                                                   .host = "127.0.0.1",
                                                   .port = port,
                                                   .token = kJobToken,
                                                   .server_task = "ps 0",
                                                   .connect_timeout = std::chrono::seconds(30)});
  is_leaving = true;
  EXPECT_EQ(serving.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  client.reset();
  EXPECT_EQ(serving.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  serving.get();
}

}  // namespace
}  // namespace lockstep
