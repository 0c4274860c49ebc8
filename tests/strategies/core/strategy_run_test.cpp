// Strategy::run: arguments, results, errors, randomness.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>

#include <latch>
#include <new>
#include <set>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/numbered_dataset.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

class Run : public testing::Test {
 protected:
  /// Expects that runs still work after another one has failed.
  void expect_usable() {
    const auto sums = strategy_.run([](ReplicaContext& replica) {
      return replica.all_reduce(ReduceOp::kSum, torch::full({1}, replica.replica_id() + 1.0)).item<double>();
    });
    EXPECT_EQ(sums.local_values(), (std::vector<double>{6, 6, 6}));
  }

  MirroredStrategy strategy_{cpu_devices(3), {.intra_op_threads = 1}};
};

TEST_F(Run, EachReplicaKnowsWhoItIs) {
  const auto seen = strategy_.run([](ReplicaContext& replica) {
    return std::to_string(replica.replica_id()) + " of " + std::to_string(replica.num_replicas()) + " on " +
           replica.logical_device().str();
  });
  EXPECT_EQ(seen.local_values(),
            (std::vector<std::string>{"0 of 3 on cpu:0", "1 of 3 on cpu:1", "2 of 3 on cpu:2"}));
}

TEST_F(Run, ReplicasAreInsideAtTheSameTimeOnThreadsThatStay) {
  std::latch all_are_inside(3);
  const auto where = [&](ReplicaContext&) {
    all_are_inside.arrive_and_wait();  // would wait forever if replicas ran one after another
    return std::this_thread::get_id();
  };
  const auto threads = strategy_.run(where).local_values();
  EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(), 3U);
  EXPECT_EQ(strategy_.run([](ReplicaContext&) { return std::this_thread::get_id(); }).local_values(),
            threads);
}

TEST_F(Run, MirroredAndPerReplicaArgumentsArriveAsTheReplicasOwnAndOthersAsConstants) {
  auto counts = strategy_.scope([](ReplicaContext&) { return 0; });
  const auto ids = strategy_.distribute_values_from_function(
      [](const ValueContext& c) { return c.replica_id_in_sync_group; });
  const std::string word = "shared";
  const auto results = strategy_.run(
      [&word](ReplicaContext&, auto& count, auto& id, auto& text, auto& number) {
        static_assert(std::is_same_v<decltype(count), int&>);
        static_assert(std::is_same_v<decltype(id), const int&>);
        static_assert(std::is_same_v<decltype(text), const std::string&>);
        static_assert(std::is_same_v<decltype(number), const double&>);
        EXPECT_EQ(&text, &word) << "not copied";
        count += id + 1;
        return number * id;
      },
      counts, ids, word, 2.5);
  EXPECT_EQ(counts.local_values(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(results.local_values(), (std::vector<double>{0, 2.5, 5}));
}

TEST_F(Run, AFunctionWithoutAResultAndOneThatOnlyMoves) {
  auto counts = strategy_.scope([](ReplicaContext&) { return 0; });
  strategy_.run([](ReplicaContext&, int& count) { ++count; }, counts);
  EXPECT_EQ(counts.local_values(), (std::vector<int>{1, 1, 1}));
  const auto owned =
      strategy_.run([](ReplicaContext& replica) { return std::make_unique<int>(replica.replica_id()); });
  EXPECT_EQ(*owned.local_values()[2], 2);
}

TEST_F(Run, TheCallersGradModeHoldsInside) {
  const auto grad_modes = [&] {
    return strategy_.run([](ReplicaContext&) { return at::GradMode::is_enabled() ? 1 : 0; }).local_values();
  };
  EXPECT_EQ(grad_modes(), (std::vector<int>{1, 1, 1}));
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(grad_modes(), (std::vector<int>{0, 0, 0}));
}

TEST_F(Run, RefusesArgumentsOfAnotherNumberOfReplicas) {
  MirroredStrategy two(cpu_devices(2), {.intra_op_threads = 1});
  auto foreign = two.scope([](ReplicaContext&) { return 1; });
  const auto message = message_of<InvalidArgument>(
      [&] { strategy_.run([](ReplicaContext&, int& value) { ++value; }, foreign); });
  EXPECT_NE(message.find("each of the 3 replicas, but got one with 2"), std::string::npos) << message;
  EXPECT_EQ(foreign.local_values(), (std::vector<int>{1, 1}));
}

TEST_F(Run, RefusesARunInsideARun) {
  const auto message = message_of<InvalidArgument>(
      [&] { strategy_.run([&](ReplicaContext&) { strategy_.run([](ReplicaContext&) {}); }); });
  EXPECT_NE(message.find("run was called inside a replica function"), std::string::npos) << message;
  expect_usable();
}

TEST_F(Run, TheFirstErrorThatIsNoConsequenceIsReportedWhicheverReplicaItCameFrom) {
  for (int failing = 0; failing < 3; ++failing) {
    const auto message = message_of<std::out_of_range>([&] {
      strategy_.run([failing](ReplicaContext& replica) {
        if (replica.replica_id() == failing) throw std::out_of_range("replica " + std::to_string(failing));
        replica.all_reduce_(ReduceOp::kSum, torch::ones({1}));
      });
    });
    EXPECT_EQ(message, "replica " + std::to_string(failing));
  }
  expect_usable();
}

TEST_F(Run, OutOfMemoryNamesTheReplicaAndForeignThrowablesSurfaceAsTheyAre) {
  const auto fail_with = [&](const std::function<void()>& fail) {
    strategy_.run([&fail](ReplicaContext& replica) {
      if (replica.replica_id() == 2) fail();
      replica.all_reduce_(ReduceOp::kSum, torch::ones({1}));
    });
  };
  const auto message = message_of<OutOfMemory>([&] { fail_with([] { throw std::bad_alloc(); }); });
  EXPECT_NE(message.find("replica 2 on cpu:2 is out of memory"), std::string::npos) << message;
  expect_usable();
  EXPECT_THROW(fail_with([] { throw 42; }), int);
  expect_usable();
}

TEST_F(Run, ReplicasThatCallDifferentCollectivesGetAnErrorThatNamesThem) {
  const auto message = message_of<CollectiveMismatch>([&] {
    strategy_.run([](ReplicaContext& replica) {
      replica.all_reduce_(ReduceOp::kSum, torch::ones({replica.replica_id() == 1 ? 4 : 3}));
    });
  });
  EXPECT_NE(message.find("[3]"), std::string::npos) << message;
  EXPECT_NE(message.find("[4]"), std::string::npos) << message;
  expect_usable();
}

TEST_F(Run, AModuleThatCannotTrainOnATinyShardIsToldWhatHelps) {
  auto model = strategy_.scope([](ReplicaContext&) { return torch::nn::BatchNorm1d(2); });
  torch::manual_seed(1);
  auto batches = strategy_.distribute_dataset(TensorDataset(torch::ones({4, 2}), torch::arange(4)),
                                              {.global_batch_size = 4});
  for (const auto& batch : batches) {
    // Shards of 2, 2 and 0: batch normalisation has nothing to normalise on the third.
    const auto message = message_of<std::runtime_error>([&] {
      strategy_.run(
          [](ReplicaContext&, torch::nn::BatchNorm1d& own, const Example& shard) {
            if (shard.data.size(0) == 0) TORCH_CHECK(false, "Expected more than 1 value per channel");
            own->forward(shard.data);
          },
          model, batch);
    });
    EXPECT_NE(message.find("replica 2 (cpu:2) failed on a shard of 0 of the 4 examples"), std::string::npos)
        << message;
    EXPECT_NE(message.find("Expected more than 1 value per channel"), std::string::npos) << message;
    EXPECT_NE(message.find("drop_remainder"), std::string::npos) << message;
    const auto out_of_memory = [](ReplicaContext&, const Example& shard) {
      if (shard.data.size(0) == 0) TORCH_CHECK_WITH(OutOfMemoryError, false, "planted");
    };
    EXPECT_THROW(strategy_.run(out_of_memory, batch), OutOfMemory) << "more memory would help, not that";
    const auto user_error = [](ReplicaContext&, const Example& shard) {
      if (shard.data.size(0) == 0) throw std::domain_error("planted");
    };
    EXPECT_THROW(strategy_.run(user_error, batch), std::domain_error);
  }
}

TEST_F(Run, DropoutDiffersBetweenReplicasAndRepeatsWithTheSeed) {
  const auto masks = [](uint64_t seed, int runs) {
    MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1, .seed = seed});
    auto dropout = strategy.scope([](ReplicaContext&) { return torch::nn::Dropout(0.5); });
    std::vector<torch::Tensor> all;
    for (int run = 0; run < runs; ++run) {
      const auto outputs = strategy.run(
          [](ReplicaContext&, torch::nn::Dropout& own) { return own->forward(torch::ones({64})); }, dropout);
      all.insert(all.end(), outputs.local_values().begin(), outputs.local_values().end());
    }
    return all;
  };
  const auto first = masks(7, 2);
  for (size_t i = 0; i < first.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(torch::equal(first[i], first[j])) << i << " and " << j;
  }
  EXPECT_TRUE(bit_equal(masks(7, 2), first));
  EXPECT_FALSE(bit_equal(masks(8, 2), first));
}

TEST_F(Run, TheStrategyTakesTheProcesssSeedAndLeavesItsRandomStateAlone) {
  const auto draw = [] {
    torch::manual_seed(99);
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
    return strategy.gather(strategy.run([](ReplicaContext&) { return torch::rand({4}); }));
  };
  const auto first = draw();
  const auto after = torch::rand({2});
  EXPECT_TRUE(torch::equal(draw(), first));
  torch::manual_seed(99);
  EXPECT_TRUE(torch::equal(torch::rand({2}), after)) << "replicas drew from streams of their own";
}

}  // namespace
}  // namespace lockstep
