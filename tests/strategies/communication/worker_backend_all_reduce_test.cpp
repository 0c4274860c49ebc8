// Workers over the fake NCCL, with one rank for each replica of every worker.
#include "lockstep/strategies/communication/internal/worker_backend_all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/exchange/algorithm_choice.h"
#include "lockstep/tests/support/fake_nccl.h"
#include "lockstep/tests/support/worker_training.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using Fault = FakeNcclWorld::Fault;

class WorkersOverABackend : public testing::Test {
 protected:
  using Change = std::function<void(int, WorkerSetUp&)>;

  /// Sets up workers over the fake. NCCL accepts a device only once, so each replica has a different one.
  Change over_the_fake(
      const std::vector<int>& num_replicas, Change change = [](int, WorkerSetUp&) {}) {
    return [this, num_replicas, change = std::move(change)](int rank, WorkerSetUp& set_up) {
      set_up.options.cross_device_ops = std::make_shared<BackendAllReduce>("FakeNccl", world_->factory());
      int device = 0;
      for (int other = 0; other < rank; ++other) device += num_replicas[static_cast<size_t>(other)];
      for (int i = 0; i < num_replicas[static_cast<size_t>(rank)]; ++i)
        set_up.devices.push_back("cpu:" + std::to_string(device++));
      change(rank, set_up);
    };
  }
  std::vector<std::exception_ptr> run(
      const std::vector<int>& num_replicas, const std::function<void(MultiWorkerMirroredStrategy&)>& work,
      const Change& change = [](int, WorkerSetUp&) {}) {
    return run_strategies(num_replicas, work, over_the_fake(num_replicas, change));
  }

  /// The parameters after training on all workers.
  std::vector<torch::Tensor> trained(const std::vector<int>& num_replicas,
                                     const std::shared_ptr<GradientCompression>& compression = nullptr) {
    return trained_by_workers({.num_replicas = num_replicas,
                               .start = start_,
                               .change = over_the_fake(num_replicas, [&](int, WorkerSetUp& set_up) {
                                 set_up.options.communication.gradient_compression = compression;
                               })});
  }

  const std::vector<torch::Tensor> start_ = initial_values();
  std::shared_ptr<FakeNcclWorld> world_ = std::make_shared<FakeNcclWorld>();
};

TEST_F(WorkersOverABackend, EqualOneDeviceWithTheSameGlobalBatch) {
  const auto expected = trained_alone<TanhNet>([&] { return tanh_net_of(start_); },
                                               examples_of_three_classes(), momentum_sgd());
  for (const auto& layout : {std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3}}) {
    const int before = world_->num_connected();
    EXPECT_LE(largest_difference(trained(layout), expected), 1e-12);
    // One communicator for the user's collectives and one for the optimizer's gradients, over all workers.
    EXPECT_EQ(world_->num_connected(), before + 2);
    EXPECT_EQ(world_->num_alive(), 0);
  }
}

TEST_F(WorkersOverABackend, CollectivesReachAllReplicasOfAllWorkers) {
  expect_no_worker_failed(run({2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    EXPECT_THAT(strategy.describe(), HasSubstr("3 replicas over 2 workers"));
    EXPECT_THAT(strategy.describe(), HasSubstr("FakeNccl (as asked for)"));
    for (int run = 0; run < 3; ++run) {
      strategy.run([&](ReplicaContext& replica) {
        const auto own = torch::full({2}, replica.replica_id(), torch::kDouble);
        EXPECT_EQ(replica.all_reduce(ReduceOp::kSum, own)[0].item<double>(), 3);
        const auto rows = replica.all_gather(torch::ones({replica.replica_id() + 1, 2}));
        EXPECT_EQ(rows.size(0), 6);
        EXPECT_EQ(replica.sum_on_host(1), 3);
        const auto value = own.clone();
        replica.broadcast_(value, 2);
        EXPECT_EQ(value[1].item<double>(), 2);
        EXPECT_EQ(replica.reduce_scatter(ReduceOp::kSum, own.repeat({3})).sum().item<double>(), 6);
        const auto moved = replica.all_to_all(torch::full({3}, replica.replica_id()));
        EXPECT_TRUE(torch::equal(moved, torch::tensor({0, 1, 2})));
        if (replica.replica_id() == 0) replica.send(own + 7, 2);
        if (replica.replica_id() == 2) {
          EXPECT_EQ(replica.receive(0, {2}, torch::kDouble)[1].item<double>(), 7);
        }
      });
    }
    const auto ids = strategy.run([](ReplicaContext& replica) { return replica.replica_id(); });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ids), 3);
  }));
}

TEST_F(WorkersOverABackend, GradientsTravelInAShorterDtype) {
  const auto exact = trained({1, 1});
  world_->clear_calls();
  const auto rounded = trained({1, 1}, make_gradient_compression("bfloat16"));
  EXPECT_GT(largest_difference(rounded, exact), 0);
  // 12 steps of 0.1 times gradients below 1, each rounded to 8 bits, with a momentum that adds up to 10.
  EXPECT_LT(largest_difference(rounded, exact), 5e-2);
  EXPECT_THAT(world_->calls(0), Each(HasSubstr("all_reduce BFloat16[")));
  EXPECT_THAT(world_->calls(1), Contains(HasSubstr("all_reduce BFloat16[")));
}

/// A user's own compression.
class ThinnedCompression : public GradientCompression {
 public:
  std::string name() const override { return "thinned"; }
  torch::Tensor compress(const torch::Tensor& bucket) override { return bucket; }
  void decompress(const torch::Tensor&, torch::Tensor&) override {}
};

TEST_F(WorkersOverABackend, ACompressionThatWorksOnTheHostIsRefused) {
  const auto errors = run(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int, WorkerSetUp& set_up) {
        set_up.options.communication.gradient_compression = std::make_shared<ThinnedCompression>();
      });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<InvalidArgument>(error));
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("[FakeNccl]"), HasSubstr("thinned")));
  }
}

TEST_F(WorkersOverABackend, AFailureInOneReleasesTheOthersByName) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run({2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([](ReplicaContext& replica) {
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
      if (replica.replica_id() == 2) throw std::domain_error("planted");
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    });
  });
  EXPECT_EQ(text_of(errors[1]), "planted");
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
  EXPECT_THAT(text_of(errors[0]), AllOf(HasSubstr("worker 1 ("), HasSubstr("replica 2 failed: planted")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // the timeout is 60
  EXPECT_EQ(world_->num_alive(), 0);
}

TEST_F(WorkersOverABackend, AFailureAfterASumIsFinalAlsoForTheOptimizer) {
  const auto data = examples_of_three_classes();
  const auto errors = run({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([&](ReplicaContext&) { return tanh_net_of(start_); });
    auto optimizer =
        strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
    const auto step = [&](ReplicaContext& replica, TanhNet& net, OptimizerPointer& sgd) {
      sgd->zero_grad();
      example_losses(net, data).mean().backward();
      replica.apply_gradients(*sgd);
      if (replica.replica_id() == 1) throw std::domain_error("planted");
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    };
    EXPECT_ANY_THROW(strategy.run(step, model, optimizer));
    strategy.run(step, model, optimizer);
  });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("planted"));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

TEST_F(WorkersOverABackend, AFailureIsFinal) {
  const auto errors = run({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto sum = [](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({1})); };
    const auto fail = [](ReplicaContext& replica) {
      if (replica.replica_id() == 1) throw std::domain_error("planted");
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    };
    EXPECT_ANY_THROW(strategy.run(fail));
    strategy.run(sum);
  });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("planted"));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

TEST_F(WorkersOverABackend, DifferentCallsAreToldApartByTheRunsEnd) {
  const auto errors = run({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const int size = strategy.cluster_resolver()->rank() == 0 ? 2 : 3;
    strategy.run([&](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({size})); });
    ADD_FAILURE() << "the run went well";
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<CollectiveMismatch>(error));
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("worker 0 ("), HasSubstr("all_reduce sum Float[2]"),
                                      HasSubstr("worker 1 ("), HasSubstr("all_reduce sum Float[3]")));
  }
}

TEST_F(WorkersOverABackend, CallsOfReplicasOfOneProcessAreToldApartByTheirGlobalIds) {
  const auto errors = run({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([&](ReplicaContext& replica) {
      replica.all_reduce(ReduceOp::kSum, torch::ones({replica.replica_id() == 2 ? 3 : 2}));
    });
  });
  EXPECT_TRUE(is_a<CollectiveMismatch>(errors[1]));
  EXPECT_THAT(text_of(errors[1]), AllOf(HasSubstr("replica 1 "), HasSubstr("replica 2 ")));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

TEST_F(WorkersOverABackend, AWorkerThatCannotMakeOrConnectItsBackendEndsTheOthersWait) {
  for (const auto fault : {Fault::kMaking, Fault::kConnecting}) {
    world_->set_fault(1, fault);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = run({1, 1}, [](MultiWorkerMirroredStrategy&) { ADD_FAILURE() << "connected"; });
    EXPECT_TRUE(is_a<BackendError>(errors[1])) << text_of(errors[1]);
    EXPECT_THAT(text_of(errors[1]), HasSubstr("could not connect cpu:1: replica 1 (cpu:1): fake NCCL"));
    EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
    EXPECT_THAT(text_of(errors[0]), AllOf(HasSubstr("worker 1 ("), HasSubstr("could not connect cpu:1")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // the timeout is 60
    EXPECT_EQ(world_->num_alive(), 0);
    world_->heal();
  }
}

TEST_F(WorkersOverABackend, ABackendsOwnFailureReachesAllWorkers) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    if (strategy.cluster_resolver()->rank() == 1) world_->set_fault(1, Fault::kCall);
    strategy.run([](ReplicaContext& replica) {
      replica.sum_on_host(1);  // afterwards the fault is planted
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}));
    });
    ADD_FAILURE() << "the run went well";
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // the timeout is 60
  const std::string what =
      "replica 1 (cpu:1): all_reduce sum Float[1] (collective #1) failed: unhandled cuda";
  EXPECT_TRUE(is_a<BackendError>(errors[1])) << text_of(errors[1]);
  EXPECT_THAT(text_of(errors[1]), HasSubstr(what));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
  EXPECT_THAT(text_of(errors[0]), AllOf(HasSubstr("worker 1 ("), HasSubstr(what)));
}

TEST_F(WorkersOverABackend, OpsOfOneProcessAreRefused) {
  const auto errors = run(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int rank, WorkerSetUp& set_up) {
        if (rank == 0) {
          set_up.options.cross_device_ops = std::make_shared<ReductionToOneDevice>();
        } else {
          set_up.options.communication.implementation = CommunicationImplementation::kNccl;
        }
        set_up.cluster.join_timeout = std::chrono::seconds(1);
      });
  EXPECT_THAT(text_of(errors[0]), HasSubstr("ReductionToOneDevice, which knows one process only"));
  EXPECT_THAT(text_of(errors[1]), HasSubstr("but got both: FakeNccl and nccl"));
}

TEST(MultiWorkerMirroredStrategy, NcclIsRefusedForCpusBeforeTheWorkersMeet) {
  const auto errors = run_strategies(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int, WorkerSetUp& set_up) {
        set_up.options.communication.implementation = CommunicationImplementation::kNccl;
      });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<InvalidArgument>(error));
    EXPECT_THAT(text_of(error), HasSubstr("[NcclAllReduce] expected GPUs only, but replica 0 is on cpu:0"));
  }
}

/// How workers exchange in these tests, which may run with LOCKSTEP_SHARED_MEMORY=0.
ExchangePolicy tested_policy() {
  return WorkerSetUp().cluster.uses_shared_memory
             ? ExchangePolicy{.transport = "shared memory", .costs = kSharedMemoryCosts}
             : ExchangePolicy{.transport = "TCP", .costs = kNetworkCosts};
}

TEST(MultiWorkerMirroredStrategy, TakesExchangesOnCpusAndSaysWhyAndHow) {
  const auto errors = run_strategies({1, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    const ExchangePolicy policy = tested_policy();
    EXPECT_THAT(strategy.describe(),
                HasSubstr("ExchangeAllReduce (replicas are in several processes; " + describe(policy, 2) +
                          "; buckets of " + std::to_string(choose_bucket_bytes(2, policy) / 1024) + " KiB)"));
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
}

TEST(MultiWorkerMirroredStrategy, TakesTheAlgorithmAndTheBucketsThatTheUserAsksFor) {
  const auto errors = run_strategies(
      {1, 1},
      [](MultiWorkerMirroredStrategy& strategy) {
        EXPECT_THAT(strategy.describe(), AllOf(HasSubstr("ExchangeAllReduce (as asked for; over " +
                                                         tested_policy().transport + ", ring; "),
                                               HasSubstr("; buckets of 5120 KiB)")));
      },
      [](int, WorkerSetUp& set_up) {
        set_up.options.communication.exchange_algorithm = "ring";
        set_up.options.buckets.bucket_bytes = 5 << 20;
      });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
}

TEST(MultiWorkerMirroredStrategy, RefusesWorkersOfWhichOneDoesNotEncrypt) {
  const auto errors = run_strategies(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int worker, WorkerSetUp& set_up) { set_up.options.communication.encrypt = worker == 0; });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("encryption on"), HasSubstr("encryption off")));
}

TEST(MultiWorkerMirroredStrategy, RefusesDifferentExchangeAlgorithms) {
  const auto errors = run_strategies(
      {1, 1}, [](MultiWorkerMirroredStrategy&) {},
      [](int worker, WorkerSetUp& set_up) {
        set_up.options.communication.exchange_algorithm = worker == 0 ? "halving" : "ring";
      });
  for (const auto& error : errors)
    EXPECT_THAT(text_of(error), AllOf(HasSubstr("algorithm halving"), HasSubstr("algorithm ring")));
}

}  // namespace
}  // namespace lockstep
