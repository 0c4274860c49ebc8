// A channel over a backend that fails while connecting, in a collective or after it: errors name the replica,
// the others are released soon, and the channel is reconnected for the next run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/fake_nccl.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class BackendFaults : public testing::Test {
 protected:
  using Fault = FakeNcclWorld::Fault;
  static constexpr int kReplicas = 3;

  std::unique_ptr<MirroredStrategy> make_strategy(
      std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return std::make_unique<MirroredStrategy>(
        cpu_devices(kReplicas),
        StrategyOptions{.cross_device_ops = ops_, .intra_op_threads = 1, .timeout = timeout});
  }

  /// Returns the message of the `Error` that `call` throws within a second, far below these tests' timeouts.
  template <typename Error, typename Fn>
  static std::string soon(const Fn& call) {
    const auto begin = std::chrono::steady_clock::now();
    const auto message = message_of<Error>(call);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.0);
    return message;
  }

  static void expect_usable(MirroredStrategy& strategy) {
    const auto sums = strategy.run([](ReplicaContext& replica) {
      return replica.all_reduce(ReduceOp::kSum, torch::full({1}, replica.replica_id() + 1.0)).item<double>();
    });
    EXPECT_EQ(sums.local_values(), (std::vector<double>{6, 6, 6}));
  }

  static void sum_twice(ReplicaContext& replica) {
    replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
    replica.all_reduce(ReduceOp::kSum, torch::ones({3}));
  }

  std::shared_ptr<FakeNcclWorld> world_ = std::make_shared<FakeNcclWorld>();
  std::shared_ptr<CrossDeviceOps> ops_ = std::make_shared<BackendAllReduce>("FakeNccl", world_->factory());
};

TEST_F(BackendFaults, AReplicaThatThrowsReleasesTheOthersAndTheChannelIsRenewed) {
  auto strategy = make_strategy();
  EXPECT_EQ(world_->num_connected(), 1);
  const auto fn = [](ReplicaContext& replica) {
    replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
    if (replica.replica_id() == 1) throw std::domain_error("planted");
    replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
  };
  for (int round = 1; round < 3; ++round) {
    EXPECT_EQ(soon<std::domain_error>([&] { strategy->run(fn); }), "planted");
    expect_usable(*strategy);
    EXPECT_EQ(world_->num_connected(), 1 + round);
    EXPECT_EQ(world_->num_alive(), kReplicas) << "backends of failed generations are gone";
  }
  expect_usable(*strategy);
  EXPECT_EQ(world_->num_connected(), 3) << "a run that went well renews nothing";
}

TEST_F(BackendFaults, AFailedCollectiveNamesItsReplicaDeviceAndCall) {
  auto strategy = make_strategy();
  world_->set_fault(2, Fault::kCall);
  EXPECT_EQ(
      soon<BackendError>([&] { strategy->run(sum_twice); }),
      "[FakeNccl] replica 2 (cpu:2): all_reduce sum Float[2] (collective #0) failed: unhandled cuda error");
  expect_usable(*strategy);
}

TEST_F(BackendFaults, AnErrorThatShowsAfterTheWaitReachesTheRun) {
  auto strategy = make_strategy();
  world_->set_fault(1, Fault::kLate);
  EXPECT_EQ(
      soon<BackendError>([&] { strategy->run(sum_twice); }),
      "[FakeNccl] replica 1 (cpu:1): all_reduce sum Float[2] (collective #0) failed: unhandled cuda error");
  expect_usable(*strategy);
  // A failure in a run's last collective is found when the replica returns.
  world_->set_fault(1, Fault::kLate);
  EXPECT_EQ(
      soon<BackendError>([&] {
        strategy->run([](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({2})); });
      }),
      "[FakeNccl] replica 1 (cpu:1): all_reduce sum Float[2] (collective #1) failed: unhandled cuda error");
  expect_usable(*strategy);
}

TEST_F(BackendFaults, AnErrorThatShowsAfterTheRunIsThrownByTheNextOne) {
  auto strategy = make_strategy();
  world_->set_fault(1, Fault::kLater);
  const auto fn = [](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({2})); };
  EXPECT_NO_THROW(strategy->run(fn));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto message =
      soon<BackendError>([&] { strategy->run([](ReplicaContext&) { ADD_FAILURE() << "ran"; }); });
  EXPECT_THAT(message, HasSubstr("replica 1 (cpu:1): all_reduce sum Float[2] (collective #0) failed"));
  expect_usable(*strategy);
}

TEST_F(BackendFaults, ARunThatFailsCutsOffNoSumOfTheOneBefore) {
  auto strategy = make_strategy();
  for (int rank = 0; rank < kReplicas; ++rank) world_->set_fault(rank, Fault::kSlow);
  // As on GPUs, the run ends while its sum is still under way.
  const auto values = strategy->run([](ReplicaContext& replica) {
    const auto value = torch::ones({2});
    replica.all_reduce_(ReduceOp::kSum, value);
    return value;
  });
  EXPECT_EQ(soon<std::domain_error>(
                [&] { strategy->run([](ReplicaContext&) { throw std::domain_error("planted"); }); }),
            "planted");
  for (const auto& value : values.local_values())
    EXPECT_TRUE(torch::equal(value, torch::full({2}, float{kReplicas})));
  expect_usable(*strategy);
}

TEST_F(BackendFaults, TrainingGoesOnWhereTheChannelFailsBetweenBackwardAndStep) {
  auto strategy = make_strategy();
  using Sgd = torch::optim::SGD;
  auto model = strategy->scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy->scope([&](ReplicaContext& replica) { return Sgd(model[replica]->parameters(), 0.1); });
  const auto backward = [](ReplicaContext& replica, TanhNet& own) {
    own->zero_grad();
    own->forward(torch::full({2, 6}, replica.replica_id() + 1.0, torch::kDouble)).sum().backward();
  };
  const auto step = [](ReplicaContext& replica, Sgd& sgd) { replica.apply_gradients(sgd); };
  const auto sums = [&] {
    strategy->run(backward, model);
    strategy->run(step, optimizer);
    return model.primary()->parameters()[0].grad().clone();
  };
  sums();
  // A later run waits for the sums; before that, the channel fails.
  strategy->run(backward, model);
  world_->set_fault(1, Fault::kLater);
  strategy->run([](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({2})); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THAT(soon<BackendError>([&] { strategy->run(step, optimizer); }), HasSubstr("replica 1"));
  for (const auto& own : model.local_values())
    EXPECT_FALSE(own->parameters()[0].grad().defined()) << "half a sum would be taken for a gradient";
  sums();
  for (const auto& own : model.local_values())
    EXPECT_TRUE(bit_equal(own->parameters(), model.primary()->parameters()));
}

TEST_F(BackendFaults, AMissingReplicaIsNamedAfterTheTimeout) {
  auto strategy = make_strategy(std::chrono::milliseconds(200));
  const auto message = message_of<CollectiveAborted>([&] {
    strategy->run([](ReplicaContext& replica) {
      if (replica.replica_id() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
      replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
    });
  });
  EXPECT_EQ(message, "all_reduce sum Float[2] (collective #0) timed out after 0.2 s; missing: replica 1");
  expect_usable(*strategy);
}

TEST_F(BackendFaults, TrainingGoesOnAfterTheSumOfTheGradientsFailed) {
  auto strategy = make_strategy();
  using Sgd = torch::optim::SGD;
  torch::manual_seed(5);
  auto model = strategy->scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy->scope([&](ReplicaContext& replica) { return Sgd(model[replica]->parameters(), 0.1); });
  const auto step = [](ReplicaContext& replica, TanhNet& own, Sgd& sgd) {
    sgd.zero_grad();
    own(torch::full({1, 6}, 0.5 + replica.replica_id(), torch::kDouble)).square().sum().backward();
    replica.apply_gradients(sgd);
  };
  for (int round = 0; round < 2; ++round) {
    world_->set_fault(1, Fault::kCall);
    EXPECT_THAT(soon<BackendError>([&] { strategy->run(step, model, optimizer); }),
                HasSubstr("replica 1 (cpu:1)"));
    strategy->restore_consistency(model, optimizer);
    strategy->run(step, model, optimizer);
    for (const auto& own : model.local_values())
      EXPECT_TRUE(bit_equal(own->parameters(), model.primary()->parameters()));
  }
  // The oracle: LibTorch alone. Failed steps changed nothing.
  torch::manual_seed(5);
  TanhNet alone;
  Sgd sgd(alone->parameters(), 0.1);
  const auto inputs = torch::tensor({0.5, 1.5, 2.5}, torch::kDouble).unsqueeze(1).expand({3, 6});
  for (int i = 0; i < 2; ++i) {
    sgd.zero_grad();
    alone(inputs).square().sum().backward();
    sgd.step();
  }
  EXPECT_LE(largest_difference(values_of(model.primary()->parameters()), values_of(alone->parameters())),
            1e-12);
}

TEST_F(BackendFaults, ARankThatCannotConnectEndsTheOthersWaits) {
  for (const auto fault : {Fault::kMaking, Fault::kConnecting}) {
    for (const int rank : {0, 2}) {
      world_->set_fault(rank, fault);
      EXPECT_THAT(soon<BackendError>([&] { make_strategy(); }),
                  HasSubstr("could not connect cpu:0 cpu:1 cpu:2: replica " + std::to_string(rank)));
      world_->heal();
      EXPECT_EQ(world_->num_alive(), 0);
    }
  }
  expect_usable(*make_strategy());
}

TEST_F(BackendFaults, ARankThatNeverConnectsEndsByTheTimeout) {
  world_->set_fault(1, Fault::kAbsent);
  EXPECT_THAT(soon<BackendError>([&] { make_strategy(std::chrono::milliseconds(100)); }),
              HasSubstr("[FakeNccl] could not connect cpu:0 cpu:1 cpu:2: "));
  EXPECT_EQ(world_->num_alive(), 0);
}

TEST_F(BackendFaults, AThreadThatNobodyCanReleaseIsLeftBehind) {
  world_->set_fault(1, Fault::kDeaf);
  EXPECT_THAT(soon<BackendError>([&] { make_strategy(std::chrono::milliseconds(100)); }),
              HasSubstr("could not connect cpu:0 cpu:1 cpu:2: "));
  EXPECT_EQ(world_->num_alive(), 1) << "the deaf one's";
  world_->heal();  // lets the deaf backend end
  for (int i = 0; i < 1000 && world_->num_alive() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(world_->num_alive(), 0);
}

TEST_F(BackendFaults, AFactoryThatRefusesIsTheCallersMistake) {
  const BackendAllReduce refusing("Picky",
                                  [](const BackendRequest& request) -> c10::intrusive_ptr<c10d::Backend> {
                                    if (request.rank == 1) throw InvalidArgument("expected an even rank");
                                    return nullptr;
                                  });
  const auto message =
      message_of<InvalidArgument>([&] { refusing.make_channel(logical_cpus(2), std::chrono::seconds(10)); });
  EXPECT_THAT(message, HasSubstr("[Picky] could not connect cpu:0 cpu:1: replica "));
}

TEST_F(BackendFaults, TwoRanksOnOneDeviceAreRefusedByTheBackend) {
  const Devices twice{{c10::DeviceType::CPU, 0}, {c10::DeviceType::CPU, 0}};
  EXPECT_THAT(soon<BackendError>([&] { ops_->make_channel(twice, std::chrono::seconds(10)); }),
              HasSubstr("Duplicate GPU detected: cpu:0"));
}

TEST_F(BackendFaults, AChannelThatCannotConnectAgainFailsEachRunUntilItCan) {
  auto strategy = make_strategy();
  EXPECT_THROW(strategy->run([](ReplicaContext&) { throw std::domain_error("planted"); }), std::domain_error);
  world_->set_fault(2, Fault::kConnecting);
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(soon<BackendError>([&] { expect_usable(*strategy); }), HasSubstr("replica 2 (cpu:2)"));
  world_->heal();
  expect_usable(*strategy);
}

TEST_F(BackendFaults, AbortEndsTheConnectingOfAChannel) {
  const auto channel = ops_->make_channel(logical_cpus(2), std::chrono::seconds(20));
  channel->abort("first");
  channel->reset();
  world_->set_fault(1, Fault::kAbsent);
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    channel->abort("enough");
  });
  EXPECT_EQ(soon<CollectiveAborted>([&] { channel->enter(); }), "enough");
  aborter.join();
  world_->heal();
  channel->enter();
  std::vector<at::Tensor> tensors{torch::ones({2})};
  const auto work = channel->backend(0)->allreduce(tensors);
  channel->abort("over");
  EXPECT_EQ(soon<CollectiveAborted>([&] { work->wait(); }), "over");
  EXPECT_EQ(soon<CollectiveAborted>([&] { channel->backend(1)->allreduce(tensors); }), "over");
}

TEST_F(BackendFaults, EachConnectionHasAGenerationAndEachRankAStoreOfItsOwn) {
  std::mutex mutex;
  std::set<const void*> stores;
  std::set<int> generations;
  const BackendAllReduce counting("Counting", [&, make = world_->factory()](const BackendRequest& request) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stores.insert(request.store.get());
      generations.insert(request.generation);
    }
    // A key of an earlier generation must not be seen.
    request.store->set("own" + std::to_string(request.rank), std::to_string(request.generation));
    EXPECT_EQ(request.store->get_to_str("own0"), std::to_string(request.generation));
    return make(request);
  });
  const auto channel = counting.make_channel(logical_cpus(2), std::chrono::seconds(20));
  EXPECT_EQ(stores.size(), 2U);
  channel->reset();
  channel->enter();
  EXPECT_EQ(generations, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace lockstep
