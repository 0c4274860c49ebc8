// Calls that a hierarchical backend refuses, and how it ends mismatched calls.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/runtime/backends/internal/hierarchical_backend.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(HierarchicalBackend, NamesBothWorkersWhereTheirCallsDiffer) {
  const auto errors = run_workers({1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run([&](int replica, c10d::Backend& backend) {
      std::vector<at::Tensor> values{at::zeros({3 + replica})};
      backend.allreduce(values)->wait();
    });
  });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<CollectiveMismatch>(error),
                AllOf(HasSubstr("collective #0"), HasSubstr("worker 0 ("), HasSubstr("worker 1 ("),
                      HasSubstr("[3]"), HasSubstr("[4]")));
  }
}

TEST(HierarchicalBackend, RefusesACollectiveThatAnotherWorkerCallsInItsNextRun) {
  const auto errors = run_workers({1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    for (int run = 0; run < 2; ++run) {
      replicas.run([&](int replica, c10d::Backend& backend) {
        std::vector<at::Tensor> values{at::zeros({3})};
        backend.allreduce(values)->wait();
        if (replica == 1) backend.allreduce(values)->wait();
      });
    }
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<CollectiveMismatch>(error), HasSubstr("the first of a run"));
}

TEST(HierarchicalBackend, NamesAWorkerThatEndsWithFewerCalls) {
  const auto errors = run_workers({1, 1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run([&](int replica, c10d::Backend& backend) {
      std::vector<at::Tensor> values{at::zeros({3})};
      backend.allreduce(values)->wait();
      if (replica != 1) backend.allreduce(values)->wait();
    });
  });
  EXPECT_EQ(message_of<std::exception>(errors[1]), "no error");
  // Whichever of the two finds the mismatch tells the other.
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(message_of<std::exception>(errors[rank]),
                AllOf(HasSubstr("collective #1: worker "), HasSubstr("[3]"), HasSubstr("but worker 1 ("),
                      HasSubstr("came to the end without it")));
  }
}

TEST(HierarchicalBackend, NamesAWorkerThatEndsWithoutACallBetweenRuns) {
  ::testing::internal::CaptureStderr();
  const auto errors = run_workers({1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    if (group.layout()->worker() == 0) group.gather("for the first worker alone");
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(message_of<std::exception>(errors[1]), "no error");
  EXPECT_THAT(
      message_of<CollectiveMismatch>(errors[0]),
      AllOf(HasSubstr("worker 0 ("), HasSubstr("worker 1 ("), HasSubstr("came to the end without it")));
  // Worker 1 is at its end and can only print the failure.
  EXPECT_THAT(said,
              AllOf(HasSubstr("worker 1 ("), HasSubstr(") was at its end when the job failed: worker 0 (")));
}

TEST(HierarchicalBackend, SaysForWhomAWorkerWaitsAndGoesOn) {
  ::testing::internal::CaptureStderr();
  const auto errors = run_workers(
      {1, 1},
      [&](WorkerGroup& group) {
        WorkerReplicas replicas(group);
        replicas.run([&](int replica, c10d::Backend& backend) {
          if (replica == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
          std::vector<at::Tensor> values{at::zeros({3})};
          backend.allreduce(values)->wait();
        });
      },
      [](JoinOptions& options) { options.report_stall_after = std::chrono::milliseconds(200); });
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
  EXPECT_THAT(said, AllOf(HasSubstr("[stall] worker 0 ("), HasSubstr("collective #0 of test"),
                          HasSubstr("for worker 1 ("), HasSubstr("has been in no collective for")));
}

/// A sum of so many elements has several parts. Replicas that do not wait leave some parts to the next run.
at::Tensor several_parts_of(int value) {
  return at::full({200'000}, value, at::kFloat);
}

TEST(HierarchicalBackend, MatchesASumThatOnlySomeWorkersLeaveToTheNextRun) {
  // Worker 0's replicas finish the sum in the second run; worker 1's only replica sent it in the first.
  const auto errors = run_workers({2, 1}, [](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    std::vector<std::vector<at::Tensor>> left(3);
    std::vector<c10::intrusive_ptr<c10d::Work>> works(3);
    replicas.run([&](int replica, c10d::Backend& backend) {
      const auto self = static_cast<size_t>(replica);
      left[self] = {several_parts_of(replica + 1)};
      works[self] = backend.allreduce(left[self]);
    });
    replicas.run([&](int replica, c10d::Backend& backend) {
      const auto self = static_cast<size_t>(replica);
      std::vector<at::Tensor> own{at::full({3}, replica)};
      backend.allreduce(own)->wait();
      works[self]->wait();
      EXPECT_TRUE(own[0].eq(0 + 1 + 2).all().item<bool>());
      EXPECT_TRUE(left[self][0].eq(1 + 2 + 3).all().item<bool>());
    });
  });
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
}

TEST(HierarchicalBackend, RefusesALeftOverSumThatAnotherWorkerCallsFirstInItsNextRun) {
  const auto errors = run_workers({2, 1}, [](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    std::vector<std::vector<at::Tensor>> values(3);
    std::vector<c10::intrusive_ptr<c10d::Work>> works(3);
    for (int run = 0; run < 2; ++run) {
      replicas.run([&](int replica, c10d::Backend& backend) {
        const auto self = static_cast<size_t>(replica);
        values[self] = {several_parts_of(1)};
        // Both workers sum twice, but worker 1 sums once in each run.
        if (run == 0 || replica == 2) backend.allreduce(values[self])->wait();
        if (run == 0 && replica != 2) works[self] = backend.allreduce(values[self]);
        if (run == 1 && replica != 2) works[self]->wait();
      });
    }
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<CollectiveMismatch>(error), HasSubstr("the first of a run"));
}

TEST(HierarchicalBackend, TellsTheOtherWorkersWhatHasFailedWithinASecond) {
  std::chrono::steady_clock::time_point thrown;
  std::chrono::steady_clock::time_point noticed;
  const auto errors = run_workers({1, 2}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    try {
      replicas.run([&](int replica, c10d::Backend& backend) {
        std::vector<at::Tensor> values{at::zeros({3})};
        backend.allreduce(values)->wait();
        if (replica == 2) {
          thrown = std::chrono::steady_clock::now();
          throw std::runtime_error("the user's own error");
        }
        backend.allreduce(values)->wait();
      });
    } catch (const PeerLost&) {
      noticed = std::chrono::steady_clock::now();
      throw;
    }
  });
  EXPECT_THAT(message_of<PeerLost>(errors[0]), AllOf(HasSubstr("worker 1 ("), HasSubstr("a replica failed")));
  EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "the user's own error");
  EXPECT_LT(noticed - thrown, std::chrono::seconds(1));
}

TEST(HierarchicalBackend, StaysFailed) {
  const auto errors = run_workers({1, 1}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    const auto fail = [&] {
      replicas.run([&](int replica, c10d::Backend& backend) {
        if (replica == 1) throw std::runtime_error("the user's own error");
        backend.barrier()->wait();
      });
    };
    EXPECT_ANY_THROW(fail());
    replicas.channel().reset();
    fail();
  });
  EXPECT_THAT(message_of<PeerLost>(errors[0]), HasSubstr("worker 1 ("));
  EXPECT_THAT(message_of<CollectiveAborted>(errors[1]), HasSubstr("a replica failed"));
}

TEST(HierarchicalBackend, RefusesProductsAndExtremesOfComplexNumbersAndSumsThem) {
  const auto errors = run_workers({1, 2}, [](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run([](int replica, c10d::Backend& backend) {
      std::vector<at::Tensor> values{at::zeros({2}, at::kComplexDouble)};
      values[0].fill_(c10::complex<double>(replica, 1));
      for (const auto op : {c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        const std::string name = op == c10d::ReduceOp::PRODUCT ? "product" : "imum";
        try {
          backend.allreduce(values, options)->wait();
          ADD_FAILURE() << "made a " << name;
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("expected real tensors"), HasSubstr(name), HasSubstr("ComplexDouble")));
        }
      }
      backend.allreduce(values)->wait();
      EXPECT_TRUE(values[0].eq(c10::complex<double>(0 + 1 + 2, 3)).all().item<bool>());
    });
  });
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
}

/// The error that worker 1, whose replicas are 1 and 2, throws if each replica calls `function` in a run.
std::string error_of_worker_one(const std::function<void(int, c10d::Backend&)>& function) {
  return message_of<std::exception>(run_workers({1, 2}, [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    replicas.run(function);
  })[1]);
}

TEST(HierarchicalBackend, NumbersReplicasOverAllWorkersInItsErrors) {
  const auto sum = [](c10d::Backend& backend, const at::Tensor& tensor) {
    std::vector<at::Tensor> values{tensor};
    backend.allreduce(values)->wait();
  };
  const auto differing = error_of_worker_one(
      [&](int replica, c10d::Backend& backend) { sum(backend, at::zeros({replica + 1})); });
  EXPECT_THAT(differing, AllOf(HasSubstr("replica 1 called"), HasSubstr("replica 2 called"),
                               Not(HasSubstr("replica 0"))));
  const auto left = error_of_worker_one([&](int replica, c10d::Backend& backend) {
    if (replica < 2) sum(backend, at::zeros({3}));
  });
  EXPECT_THAT(left, AllOf(HasSubstr("replica 1 called"), HasSubstr("replica 2 returned without joining")));
  const auto shared = at::zeros({3});
  const auto same_memory = error_of_worker_one(
      [&](int replica, c10d::Backend& backend) { sum(backend, replica == 0 ? at::zeros({3}) : shared); });
  EXPECT_THAT(same_memory, HasSubstr("replicas 1 and 2 gave the same memory"));
}

}  // namespace
}  // namespace lockstep
