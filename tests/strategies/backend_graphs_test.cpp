// Graphs that hold a channel's collectives.
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

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/graph_recording.h"
#include "lockstep/runtime/optimizer_group.h"
#include "lockstep/strategies/mirrored_strategy.h"
#include "lockstep/tests/runtime/noted_graphs.h"
#include "lockstep/tests/strategies/fake_nccl.h"
#include "lockstep/tests/strategies/tanh_net.h"

namespace lockstep {
namespace {

class BackendGraphs : public testing::Test {
 protected:
  using Fault = FakeNcclWorld::Fault;
  using Recording = std::shared_ptr<GraphRecording>;

  /// A function with collectives of `channel` in it, captured by `replica`.
  Recording capture(CollectiveGroup& channel, int replica) {
    auto& notes = notes_[static_cast<size_t>(replica)];
    auto recording = std::make_shared<GraphRecording>(std::make_unique<NotedGraphs>(notes, is_idle_));
    channel.record(replica, recording);
    recording->begin({});
    recording->end();
    channel.record(replica, nullptr);
    return recording;
  }

  std::array<std::string, 3> notes_;  // of the replicas
  std::shared_ptr<std::atomic<bool>> is_idle_ = std::make_shared<std::atomic<bool>>(true);
  std::shared_ptr<FakeNcclWorld> world_ = std::make_shared<FakeNcclWorld>();
  std::shared_ptr<CrossDeviceOps> ops_ = std::make_shared<BackendAllReduce>("FakeNccl", world_->factory());
};

// NCCL's communicators neither abort nor end while a graph holds their kernels.
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

// A captured work has events that no host may ask: it runs in replays only.
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

// The host waits for no replay: what all replicas have launched may be the sums of a run that went well.
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
  EXPECT_FALSE(channel->has_lost_replay(0) || channel->has_lost_replay(1));
}

TEST_F(BackendGraphs, AbortCutsOffAReplayThatAnotherReplicaHasNotLaunched) {
  auto channel = ops_->make_channel(parse_devices(cpu_devices(2)), std::chrono::seconds(20));
  channel->enter();
  const std::vector<Recording> recordings{capture(*channel, 0), capture(*channel, 1)};
  *is_idle_ = false;
  recordings[1]->replay();
  // Replica 0's only unfinished one is the capture's own, which was launched by both.
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    *is_idle_ = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  channel->abort("for the test");
  device.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_FALSE(channel->has_lost_replay(0));
  EXPECT_TRUE(channel->has_lost_replay(1));
  EXPECT_THROW(recordings[0]->replay(), CollectiveAborted);
  channel->reset();
  EXPECT_FALSE(channel->has_lost_replay(1)) << "connected anew";
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

// A replay's sums and step are one piece: where the sums were cut off, the step has used what was there.
TEST_F(BackendGraphs, ReplicasWhoseReplayWasCutOffAreRestoredFromOneThatDidNotStep) {
  using Sgd = torch::optim::SGD;
  MirroredStrategy strategy(
      cpu_devices(3), {.cross_device_ops = ops_, .intra_op_threads = 1, .timeout = std::chrono::seconds(20)});
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return Sgd(model[replica]->parameters(), 0.1); });
  strategy.run(
      [](ReplicaContext& replica, TanhNet& own, Sgd& sgd) {
        own(torch::ones({1, 6}, torch::kDouble)).sum().backward();
        replica.apply_gradients(sgd);
      },
      model, optimizer);
  const auto expected = values_of(model.primary()->parameters());
  const auto group = strategy.optimizer_group(optimizer.primary());
  std::vector<Recording> recordings(3);
  std::latch others_have_stepped(2);
  const auto cut_off = [&](ReplicaContext& replica, TanhNet& own) {
    const int id = replica.replica_id();
    recordings[id] = capture(*group->channel(), id);
    // All have launched the captures' own.
    replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    if (id == 1) {
      others_have_stepped.wait();
      throw std::domain_error("planted");
    }
    recordings[id]->replay();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : own->parameters()) parameter.fill_(-1);  // what became of it
    group->count_step(id);
    others_have_stepped.count_down();
  };
  EXPECT_THROW(strategy.run(cut_off, model), std::domain_error);
  EXPECT_THROW(strategy.run([](ReplicaContext&) {}), InconsistentReplicas);
  strategy.restore_consistency(model, optimizer);
  for (const auto& own : model.local_values()) EXPECT_TRUE(bit_equal(own->parameters(), expected));
  EXPECT_NO_THROW(strategy.run([](ReplicaContext&) {}));
}

}  // namespace
}  // namespace lockstep
