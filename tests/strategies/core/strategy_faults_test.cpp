// An error on one replica before, in or after a collective: it surfaces unchanged and soon, the others are
// released, and the strategy stays usable.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/failing_ops.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

/// The parameter is the name of a cross-device op.
class Faults : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kReplicas = 3;
  using Sgd = torch::optim::SGD;

  static Sgd make_sgd(TanhNet& model) {
    return Sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  }

  /// The message of the `Error` that a run of `fn` throws.
  template <typename Error, typename Fn, typename... Args>
  std::string error_of_run(const Fn& fn, Args&... args) {
    std::chrono::duration<double> elapsed{0};
    const auto message = message_of<Error>([&] {
      const auto begin = std::chrono::steady_clock::now();
      try {
        strategy_.run(fn, args...);
      } catch (...) {
        elapsed = std::chrono::steady_clock::now() - begin;
        throw;
      }
    });
    // Not a measurement of speed but the contract: waits that nobody ends would last until the strategy's
    // timeout.
    EXPECT_LT(elapsed.count(), 1.0) << "seconds";
    return message;
  }

  void expect_usable() {
    ops_->fault = FaultIn::kNothing;
    const auto sums = strategy_.run([](ReplicaContext& replica) {
      return replica.all_reduce(ReduceOp::kSum, torch::full({1}, replica.replica_id() + 1.0)).item<double>();
    });
    EXPECT_EQ(sums.local_values(), (std::vector<double>{6, 6, 6}));
  }

  std::shared_ptr<FailingOps> ops_ = std::make_shared<FailingOps>(GetParam());
  MirroredStrategy strategy_{
      cpu_devices(kReplicas),
      {.cross_device_ops = ops_, .intra_op_threads = 1, .timeout = std::chrono::seconds(10)}};
};

TEST_P(Faults, AnErrorBeforeBetweenAndAfterCollectivesSurfacesAsItIs) {
  for (const std::string place : {"before", "between", "after"}) {
    const auto fn = [&place](ReplicaContext& replica) {
      const auto fail_at = [&](const char* here) {
        if (replica.replica_id() == 1 && place == here) throw std::domain_error(here);
      };
      fail_at("before");
      auto value = replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
      fail_at("between");
      value = replica.all_gather(value);
      replica.all_reduce_(ReduceOp::kMean, value);
      fail_at("after");
    };
    EXPECT_EQ(error_of_run<std::domain_error>(fn), place);
    expect_usable();
  }
}

TEST_P(Faults, ACollectiveThatFailsOnOneReplicaSurfacesAsItIs) {
  for (const auto fault : {FaultIn::kJoining, FaultIn::kWaiting}) {
    ops_->fault = fault;
    const auto fn = [](ReplicaContext& replica) {
      const auto sum = replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
      // Replicas whose all-reduce succeeded wait here for the one that failed.
      replica.all_gather(sum);
    };
    EXPECT_EQ(error_of_run<std::domain_error>(fn), "planted");
    expect_usable();
  }
}

// Ending one channel's collectives may take until a replica returns that waits in another channel.
TEST_P(Faults, WaitsInAllChannelsEndBeforeTheCollectivesOfAnyAreEnded) {
  auto model = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer = strategy_.scope([&](ReplicaContext& replica) { return make_sgd(model[replica]); });
  std::atomic<int> num_back = 0;
  ops_->before_abort = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (num_back < kReplicas - 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  const auto fn = [&](ReplicaContext& replica, TanhNet& own, Sgd& sgd) {
    if (replica.replica_id() == 1) throw std::domain_error("planted");
    try {
      if (replica.replica_id() == 0) {
        replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
      } else {
        own(torch::ones({1, 6}, torch::kDouble)).sum().backward();
        replica.reduce_gradients(sgd);
      }
    } catch (const CollectiveAborted&) {
      ++num_back;
      throw;
    }
  };
  EXPECT_EQ(error_of_run<std::domain_error>(fn, model, optimizer), "planted");
  EXPECT_EQ(num_back, kReplicas - 1);
}

TEST_P(Faults, AReductionThatCannotWriteOneReplicasTensorFailsOnAll) {
  const auto fn = [](ReplicaContext& replica) {
    // LibTorch does not write to tensors whose elements share memory. The op finds that out halfway, when it
    // hands the sum to this replica.
    const bool fails = replica.replica_id() == 1;
    replica.all_reduce_(ReduceOp::kSum, fails ? torch::ones({1}).expand({4}) : torch::ones({4}));
    ADD_FAILURE() << "replica " << replica.replica_id() << " went on";
  };
  const auto message = error_of_run<c10::Error>(fn);
  EXPECT_NE(message.find("single memory location"), std::string::npos) << message;
  expect_usable();
}

TEST_P(Faults, AReductionThatIsRefusedOnceAllHaveJoinedFailsOnAll) {
  const auto shared = torch::ones({4});
  const auto fn = [&shared](ReplicaContext& replica) {
    replica.all_reduce_(ReduceOp::kSum, replica.replica_id() == 2 ? torch::ones({4}) : shared);
    ADD_FAILURE() << "replica " << replica.replica_id() << " went on";
  };
  const auto message = error_of_run<InvalidArgument>(fn);
  EXPECT_NE(message.find("replicas 0 and 1 gave the same memory"), std::string::npos) << message;
  expect_usable();
}

TEST_P(Faults, TrainingGoesOnAfterTheSumOfTheGradientsFailedOnOneReplica) {
  torch::manual_seed(5);
  auto model = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer = strategy_.scope([&](ReplicaContext& replica) { return make_sgd(model[replica]); });
  const auto step = [](ReplicaContext& replica, TanhNet& own, Sgd& sgd) {
    sgd.zero_grad();
    own(torch::full({1, 6}, 0.5 + replica.replica_id(), torch::kDouble)).square().sum().backward();
    replica.apply_gradients(sgd);
  };
  // The first fault hits the first step, in which the replicas still have to agree on the order of their
  // buckets.
  for (const auto fault : {FaultIn::kWaiting, FaultIn::kJoining, FaultIn::kWaiting}) {
    ops_->fault = fault;
    EXPECT_EQ(error_of_run<std::domain_error>(step, model, optimizer), "planted");
    ops_->fault = FaultIn::kNothing;
    strategy_.restore_consistency(model, optimizer);
    strategy_.run(step, model, optimizer);
    for (const auto& own : model.local_values())
      EXPECT_TRUE(bit_equal(own->parameters(), model.primary()->parameters()));
  }

  // The oracle: LibTorch alone, for as many steps as the replicas that finished the most.
  const auto& finished = strategy_.optimizer_group(optimizer.primary())->finished_steps();
  const auto steps = *std::max_element(finished.begin(), finished.end());
  EXPECT_GE(steps, 3);
  torch::manual_seed(5);
  TanhNet alone;
  auto sgd = make_sgd(alone);
  const auto inputs = torch::tensor({0.5, 1.5, 2.5}, torch::kDouble).unsqueeze(1).expand({3, 6});
  for (int64_t i = 0; i < steps; ++i) {
    sgd.zero_grad();
    alone(inputs).square().sum().backward();
    sgd.step();
  }
  EXPECT_LE(largest_difference(values_of(model.primary()->parameters()), values_of(alone->parameters())),
            1e-12);
}

INSTANTIATE_TEST_SUITE_P(Ops, Faults, testing::Values("hierarchical_copy", "reduction_to_one_device"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
