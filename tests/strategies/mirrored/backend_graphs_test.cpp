// Graphs that hold a channel's collectives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/graphs/graph_recording.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/fake_nccl.h"
#include "lockstep/tests/support/noted_graphs.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

class BackendGraphs : public testing::Test {
 protected:
  using Fault = FakeNcclWorld::Fault;
  using Recording = std::shared_ptr<GraphRecording>;

  /// Captures a function with collectives of `channel` on `replica`.
  Recording capture(CollectiveChannel& channel, int replica) {
    auto& notes = notes_[static_cast<size_t>(replica)];
    auto recording = std::make_shared<GraphRecording>(std::make_unique<NotedGraphs>(notes, is_idle_));
    channel.record(replica, recording);
    recording->begin({});
    recording->end();
    channel.record(replica, nullptr);
    return recording;
  }

  std::array<std::string, 3> notes_;  // for each replica
  std::shared_ptr<std::atomic<bool>> is_idle_ = std::make_shared<std::atomic<bool>>(true);
  std::shared_ptr<FakeNcclWorld> world_ = std::make_shared<FakeNcclWorld>();
  std::shared_ptr<CrossDeviceOps> ops_ = std::make_shared<BackendAllReduce>("FakeNccl", world_->factory());
};

// NCCL's communicators can neither abort nor end while a graph holds their kernels.
TEST_F(BackendGraphs, GraphsThatCapturedTheCollectivesAreDestroyedBeforeTheChannelAbortsOrEnds) {
  for (const bool aborts : {true, false}) {
    auto channel = ops_->make_channel(parse_devices(cpu_devices(1)), std::chrono::seconds(20));
    EXPECT_TRUE(channel->is_capturable());
    const auto recording = capture(*channel, 0);
    EXPECT_TRUE(recording->is_usable());
    if (aborts) channel->abort("for the test");
    if (!aborts) channel.reset();
    EXPECT_FALSE(recording->is_usable());
    EXPECT_EQ(std::exchange(notes_[0], ""), "(00)0!0x");
  }
}

// Captured work has events that the host may not query: it runs only in replays.
TEST_F(BackendGraphs, CollectivesThatAreCapturedAreNotLookedAfter) {
  for (const bool captured : {true, false}) {
    auto channel = ops_->make_channel(parse_devices(cpu_devices(1)), std::chrono::seconds(20));
    channel->enter();
    std::string notes;
    const auto recording = std::make_shared<GraphRecording>(std::make_unique<NotedGraphs>(notes));
    if (captured) channel->record(0, recording);
    world_->set_fault(0, Fault::kLate);
    std::vector<at::Tensor> tensors{torch::ones({2})};
    channel->backend(0)->allreduce(tensors)->wait();
    channel->record(0, nullptr);
    const auto end = [&] {
      channel->leave(0);
      channel->check_complete();
    };
    if (captured) {
      EXPECT_NO_THROW(end());
    } else {
      EXPECT_THROW(end(), BackendError) << "the fault is there";
    }
  }
}

// The host waits for no replay, so those that all replicas launched may be the sums of a run that succeeded.
TEST_F(BackendGraphs, AbortLetsReplaysFinishThatAllReplicasHaveLaunched) {
  auto channel = ops_->make_channel(parse_devices(cpu_devices(2)), std::chrono::seconds(20));
  channel->enter();
  const std::vector<Recording> recordings{capture(*channel, 0), capture(*channel, 1)};
  for (const auto& recording : recordings) recording->replay();
  *is_idle_ = false;
  EXPECT_EQ(notes_[0], "(00)0!0!");
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    *is_idle_ = true;
  });
  channel->abort("for the test");
  EXPECT_TRUE(*is_idle_);
  device.join();
  EXPECT_EQ(notes_[0], "(00)0!0!0x");
  EXPECT_EQ(channel->num_intact(), 2) << "those of the captures and the replays";
}

TEST_F(BackendGraphs, AbortCutsOffAReplayThatAnotherReplicaHasNotLaunched) {
  auto channel = ops_->make_channel(parse_devices(cpu_devices(2)), std::chrono::seconds(20));
  channel->enter();
  const std::vector<Recording> recordings{capture(*channel, 0), capture(*channel, 1)};
  *is_idle_ = false;
  recordings[1]->replay();
  // Replica 0's only unfinished launch is the capture's own, which both replicas launched.
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    *is_idle_ = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  channel->abort("for the test");
  device.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(channel->num_intact(), 1);
  EXPECT_EQ(channel->num_joined(0), 1);
  EXPECT_EQ(channel->num_joined(1), 2);
}

TEST_F(BackendGraphs, AbortFindsOutWhatDidNotFinishInTime) {
  auto channel = ops_->make_channel(parse_devices(cpu_devices(2)), std::chrono::milliseconds(100));
  channel->enter();
  const std::vector<Recording> recordings{capture(*channel, 0), capture(*channel, 1)};
  *is_idle_ = false;
  channel->abort("for the test");
  EXPECT_EQ(channel->num_intact(), 0);
}

// A replica that stepped with sums nobody else joins would diverge from the others.
TEST_F(BackendGraphs, AReplayThatComesAfterTheReleaseIsNotLaunched) {
  auto channel = ops_->make_channel(parse_devices(cpu_devices(2)), std::chrono::seconds(20));
  channel->enter();
  const std::vector<Recording> recordings{capture(*channel, 0), capture(*channel, 1)};
  channel->release("for the test");
  EXPECT_THROW(recordings[1]->replay(), CollectiveAborted);
  EXPECT_EQ(notes_[1], "(00)0!");
}

TEST_F(BackendGraphs, AFailedReplaySurfacesAtTheEndOfARunAsTheDevicesError) {
  struct Broken : NotedGraphs {
    using NotedGraphs::NotedGraphs;
    std::function<bool()> watch_stream() override {
      return []() -> bool { throw std::domain_error("planted"); };
    }
  };
  auto channel = ops_->make_channel(parse_devices(cpu_devices(1)), std::chrono::seconds(20));
  channel->enter();
  const auto recording = std::make_shared<GraphRecording>(std::make_unique<Broken>(notes_[0]));
  channel->record(0, recording);
  recording->begin({});
  recording->end();
  channel->record(0, nullptr);
  EXPECT_THROW(channel->leave(0), std::domain_error);
}

/// Three replicas that have trained for one step and captured one.
class BackendGraphsInTraining : public BackendGraphs {
 protected:
  using Sgd = torch::optim::SGD;

  BackendGraphsInTraining() {
    strategy_.run(
        [](ReplicaContext& replica, TanhNet& own, Sgd& sgd) {
          own(torch::ones({1, 6}, torch::kDouble)).sum().backward();
          replica.apply_gradients(sgd);
        },
        model_, optimizer_);
    trained_ = values_of(model_.primary()->parameters());
    strategy_.run([&](ReplicaContext& replica) {
      recordings_[static_cast<size_t>(replica.replica_id())] =
          capture(*group_->channel(), replica.replica_id());
    });
  }

  /// A replay whose sums were cut off, so that its step used whatever was there.
  void replay(ReplicaContext& replica, TanhNet& own) {
    recordings_[static_cast<size_t>(replica.replica_id())]->replay();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : own->parameters()) parameter.fill_(-1);
    group_->count_step(replica.replica_id());
  }

  MirroredStrategy strategy_{
      cpu_devices(3),
      {.cross_device_ops = ops_, .intra_op_threads = 1, .timeout = std::chrono::milliseconds(500)}};
  Mirrored<TanhNet> model_ = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  Mirrored<Sgd> optimizer_ =
      strategy_.scope([&](ReplicaContext& replica) { return Sgd(model_[replica]->parameters(), 0.1); });
  std::shared_ptr<OptimizerGroup> group_ = strategy_.optimizer_group(optimizer_.primary());
  std::vector<torch::Tensor> trained_;
  std::array<Recording, 3> recordings_;
};

TEST_F(BackendGraphsInTraining, ReplicasWhoseReplayWasCutOffAreRestoredFromOneThatDidNotStep) {
  std::latch others_have_stepped(2);
  const auto cut_off = [&](ReplicaContext& replica, TanhNet& own) {
    if (replica.replica_id() == 1) {
      others_have_stepped.wait();
      throw std::domain_error("planted");
    }
    replay(replica, own);
    others_have_stepped.count_down();
  };
  EXPECT_THROW(strategy_.run(cut_off, model_), std::domain_error);
  EXPECT_THAT([&] { strategy_.run([](ReplicaContext&) {}); },
              testing::ThrowsMessage<InconsistentReplicas>(testing::HasSubstr(
                  "2 (the last by a sum that was cut off), 1, 2 (the last by a sum that was cut off)")));
  strategy_.restore_consistency(model_, optimizer_);
  for (const auto& own : model_.local_values()) EXPECT_TRUE(bit_equal(own->parameters(), trained_));
  EXPECT_NO_THROW(strategy_.run([](ReplicaContext&) {}));
}

TEST_F(BackendGraphsInTraining, WhereEveryReplayWasCutOffNoReplicaIsGoneOnFrom) {
  *is_idle_ = false;
  strategy_.run([&](ReplicaContext& replica, TanhNet& own) { replay(replica, own); }, model_);
  EXPECT_THROW(strategy_.run([](ReplicaContext&) { throw std::domain_error("planted"); }), std::domain_error);
  EXPECT_THROW(strategy_.run([](ReplicaContext&) {}), InconsistentReplicas) << "although all stepped twice";
  EXPECT_THAT([&] { strategy_.restore_consistency(model_, optimizer_); },
              testing::ThrowsMessage<InconsistentReplicas>(testing::HasSubstr("from a checkpoint")));
}

// SyncBatchNorm's sums, for example, use the strategy's own channel, and the gradients depend on them.
TEST_F(BackendGraphsInTraining, StepsRestOnTheFunctionsOwnCollectivesAsWell) {
  world_->set_fault(1, Fault::kLater);
  strategy_.run(
      [](ReplicaContext& replica, TanhNet& own, Sgd& sgd) {
        sgd.zero_grad();
        const auto scale = replica.all_reduce(ReduceOp::kSum, torch::ones({1}, torch::kDouble));
        (own(torch::ones({1, 6}, torch::kDouble)).sum() * scale).backward();
        replica.apply_gradients(sgd);
      },
      model_, optimizer_);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THROW(strategy_.run([](ReplicaContext&) {}), BackendError);
  EXPECT_THAT(
      [&] { strategy_.run([](ReplicaContext&) {}); },
      testing::ThrowsMessage<InconsistentReplicas>(testing::HasSubstr("no replica with a good state")));
}

}  // namespace
}  // namespace lockstep
