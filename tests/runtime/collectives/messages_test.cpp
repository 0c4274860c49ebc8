#include <gmock/gmock.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/runtime/collectives/collective_worlds.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// Messages between replicas, in worlds of at least two. Over Gloo, only those of one process.
class Messages : public CollectiveWorlds {
 protected:
  void SetUp() override {
    if (!is_one_process() && tested_transport() == WorkerTransport::kGloo)
      GTEST_SKIP() << "messages between workers do not go over Gloo";
  }
  static int next(int rank) { return (rank + 1) % num_ranks(); }
  static int previous(int rank) { return (rank + num_ranks() - 1) % num_ranks(); }
  static at::Tensor value_of(int rank) { return torch::arange(6, torch::kDouble).view({2, 3}) + 10 * rank; }
};
INSTANTIATE_TEST_SUITE_P(Worlds, Messages,
                         testing::Values(std::vector{2}, std::vector{3}, std::vector{4}, std::vector{1, 1},
                                         std::vector{2, 2}, std::vector{1, 3}, std::vector{1, 1, 1, 1, 1}));

const auto kDouble = at::TensorOptions().dtype(at::kDouble);

TEST_P(Messages, ArriveInTheOrderOfSendingInEachDtype) {
  run([&](int rank, const BackendPointer& backend) {
    const std::vector<at::ScalarType> dtypes{at::kFloat, at::kDouble,      at::kHalf, at::kBFloat16,
                                             at::kLong,  at::kInt,         at::kChar, at::kBool,
                                             at::kByte,  at::kComplexFloat};
    for (const auto dtype : dtypes) send(backend, torch::full({2, 3}, rank, dtype).t(), next(rank));
    send(backend, torch::ones({0, 4}), next(rank));
    send(backend, torch::full({}, rank + 0.5, at::kDouble), next(rank));
    for (const auto dtype : dtypes) {
      const auto value = receive(backend, previous(rank), {3, 2}, dtype);
      EXPECT_TRUE(torch::equal(value, torch::full({3, 2}, previous(rank), dtype))) << dtype;
    }
    EXPECT_EQ(receive(backend, previous(rank), {0, 4}, at::kFloat).numel(), 0);
    EXPECT_EQ(receive(backend, previous(rank), {}, at::kDouble).item<double>(), previous(rank) + 0.5);
  });
}

// A sender that waited for its receiver would wait for ever.
TEST_P(Messages, OfManyBytesInACircleDoNotBlockEachOther) {
  run([&](int rank, const BackendPointer& backend) {
    auto value = torch::full({3'000'000}, rank, at::kFloat);
    const auto sent = value.clone();
    send(backend, sent, next(rank));
    sent.zero_();  // what was sent is a copy
    const auto got = torch::empty({3'000'000}, at::kFloat);
    receive_(backend, got, previous(rank));
    EXPECT_TRUE(got.eq(previous(rank)).all().item<bool>());
  });
}

TEST_P(Messages, BetweenTwoReplicasLeaveTheOthersAlone) {
  run([&](int rank, const BackendPointer& backend) {
    const int last = num_ranks() - 1;
    for (int i = 0; i < 20; ++i) {
      if (rank == 0) send(backend, torch::full({5}, i, at::kLong), last);
      if (rank == last) {
        EXPECT_TRUE(receive(backend, 0, {5}, at::kLong).eq(i).all().item<bool>());
      }
    }
    EXPECT_EQ(all_reduce(backend, ReduceOp::kSum, {torch::ones({1})})[0].item<float>(), num_ranks());
  });
}

// Oracle: the same chain of functions on one thread.
TEST_P(Messages, BringGradientsBackThroughAChainOfReplicas) {
  const auto stage = [](const at::Tensor& x, int rank) { return (x * (0.3 + 0.1 * rank)).sin() + x; };
  auto start = value_of(0).requires_grad_();
  at::Tensor end = start;
  for (int rank = 0; rank < num_ranks(); ++rank) end = stage(end, rank);
  end.pow(2).sum().backward();

  run([&](int rank, const BackendPointer& backend) {
    const bool is_first = rank == 0;
    const auto input = is_first ? value_of(0).requires_grad_()
                                : receive(backend, rank - 1, {2, 3}, kDouble.requires_grad(true));
    EXPECT_TRUE(input.requires_grad());
    const auto output = stage(input, rank);
    if (rank == num_ranks() - 1) {
      EXPECT_TRUE(torch::allclose(output, end, 1e-14));
      output.pow(2).sum().backward();
    } else {
      send(backend, output, rank + 1).backward();
    }
    if (is_first) {
      EXPECT_TRUE(torch::allclose(input.grad(), start.grad(), 1e-12));
    }
  });
}

TEST_P(Messages, InACircleHaveTheGradientsOfDifferences) {
  run([&](int rank, const BackendPointer& backend) {
    for (const bool receives_first : {false, true}) {
      const auto loss_of = [&](const at::Tensor& own) {
        at::Tensor got;
        at::Tensor token;
        const auto take = [&] {
          got = receive(backend, previous(rank), {2, 3}, kDouble.requires_grad(true));
        };
        if (receives_first && rank > 0) take();
        token = send(backend, own * own, next(rank));
        if (!got.defined()) take();
        return (got * 0.01).exp().sum() * (rank + 0.5) + (own * got.detach().sum()).sum() * 0 + token;
      };
      expect_gradients_of_differences(backend, value_of(rank) / 10, loss_of);
    }
  });
}

// Two stages on each replica: 0, 1, 0, 1. Oracle: the chain on one thread.
TEST_P(Messages, BringGradientsBackThroughInterleavedStages) {
  const auto stage = [](const at::Tensor& x, int number) { return (x * (0.3 + 0.1 * number)).sin() + x; };
  auto start = value_of(0).requires_grad_();
  at::Tensor end = start;
  for (int number = 0; number < 4; ++number) end = stage(end, number);
  end.pow(2).sum().backward();

  for (const bool is_reversed : {false, true}) {
    run([&](int rank, const BackendPointer& backend) {
      const auto next = [&](int from) { return receive(backend, from, {2, 3}, kDouble.requires_grad(true)); };
      if (rank == 0) {
        auto input = value_of(0).requires_grad_();
        const auto first = send(backend, stage(input, 0), 1);
        const auto second = send(backend, stage(next(1), 2), 1);
        (is_reversed ? second + first : first + second).backward();
        EXPECT_TRUE(torch::allclose(input.grad(), start.grad(), 1e-12));
      } else if (rank == 1) {
        const auto token = send(backend, stage(next(0), 1), 0);
        const auto loss = stage(next(0), 3).pow(2).sum();
        (is_reversed ? loss + token : token + loss).backward();
      }
    });
  }
}

// Collectives keep their order in backward, though only one replica has sent something of a later one.
TEST_P(Messages, BesideCollectivesLeaveTheGradientsOfThoseInOrder) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    auto a = value_of(rank).requires_grad_();
    auto c = value_of(rank).requires_grad_();
    const auto first = all_reduce(backend, ReduceOp::kSum, {c})[0];
    const auto second = all_reduce(backend, ReduceOp::kSum, {a})[0];
    at::Tensor loss = first.sum() * 5;
    if (rank == 0) loss = loss + send(backend, second, 1);
    if (rank == 1) loss = loss + receive(backend, 0, {2, 3}, kDouble.requires_grad(true)).sum();
    if (rank > 0) loss = loss + second.sum() * 7;
    loss.backward();
    // Each replica's `first` counts 5. `second` counts 7 on all but replica 0, where it counts 1 on
    // replica 1.
    EXPECT_TRUE(c.grad().eq(5 * ranks).all().item<bool>());
    EXPECT_TRUE(a.grad().eq(7 * (ranks - 1) + 1).all().item<bool>());
  });
}

// The receiver's gradients become ready in another order than the values came.
TEST_P(Messages, GradientsFindTheValuesThatTheyBelongTo) {
  run([&](int rank, const BackendPointer& backend) {
    constexpr int kValues = 4;
    if (rank == 0) {
      std::vector<at::Tensor> values;
      at::Tensor tokens = torch::zeros({}, at::kDouble);
      for (int i = 0; i < kValues; ++i) {
        values.push_back(torch::full({3}, i + 1.0, at::kDouble).requires_grad_());
        tokens = tokens + send(backend, values.back() * 1, 1);
      }
      tokens.backward();
      for (int i = 0; i < kValues; ++i)
        EXPECT_TRUE(values[static_cast<size_t>(i)].grad().eq(100 + i).all().item<bool>());
    } else if (rank == 1) {
      std::vector<at::Tensor> values;
      for (int i = 0; i < kValues; ++i)
        values.push_back(receive(backend, 0, {3}, kDouble.requires_grad(true)));
      for (const int i : {2, 0, 3, 1}) (values[static_cast<size_t>(i)] * (100 + i)).sum().backward();
    }
  });
}

TEST_P(Messages, WithoutHistoryHaveNoGradient) {
  run([&](int rank, const BackendPointer& backend) {
    EXPECT_FALSE(send(backend, value_of(rank), next(rank)).requires_grad());
    EXPECT_FALSE(receive(backend, previous(rank), {2, 3}, kDouble).requires_grad());
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(send(backend, value_of(rank).requires_grad_(), next(rank)).requires_grad());
    EXPECT_FALSE(receive(backend, previous(rank), {2, 3}, kDouble.requires_grad(true)).requires_grad());
  });
}

TEST_P(Messages, AResultThatNobodyUsesSendsZerosBack) {
  run([&](int rank, const BackendPointer& backend) {
    if (rank == 0) {
      auto value = value_of(0).requires_grad_();
      send(backend, value * 2, 1).backward();
      EXPECT_TRUE(value.grad().eq(0).all().item<bool>());
    } else if (rank == 1) {
      const auto value = receive(backend, 0, {2, 3}, kDouble.requires_grad(true));
      (value * torch::zeros({2, 3}, at::kDouble)).sum().backward();
    }
  });
}

TEST_P(Messages, RefuseWhatCannotBeSentOrReceived) {
  run([&](int rank, const BackendPointer& backend) {
    const auto refusal = [](const std::function<void()>& call) { return message_of<InvalidArgument>(call); };
    EXPECT_THAT(refusal([&] { send(backend, torch::ones({1}), rank); }),
                HasSubstr("[send] expected another replica than " + std::to_string(rank)));
    EXPECT_THAT(refusal([&] { receive_(backend, torch::ones({1}), num_ranks()); }),
                HasSubstr("[receive] expected another replica"));
    EXPECT_THAT(refusal([&] {
                  receive(backend, next(rank), {1}, at::TensorOptions().dtype(at::kLong).requires_grad(true));
                }),
                HasSubstr("[receive] expected a floating-point dtype"));
  });
}

TEST_P(Messages, OfAnotherShapeOrWithoutTheExpectedGradientAreMismatches) {
  for (const bool by_shape : {true, false}) {
    const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
      if (rank == 0) send(backend, by_shape ? torch::ones({4}, at::kDouble) : value_of(0), 1);
      if (rank == 1) receive(backend, 0, {2, 3}, kDouble.requires_grad(!by_shape));
    });
    const std::string sent = by_shape ? "Double[4]" : "Double[2,3]";
    const std::string wanted = by_shape ? "Double[2,3]" : "Double[2,3] with gradient";
    EXPECT_EQ(
        count_errors<CollectiveMismatch>(errors, "[receive] replica 0 sent a message " + sent +
                                                     " to replica 1, which expects a message " + wanted),
        1);
  }
}

TEST_P(Messages, ASenderThatReturnsWithoutSendingIsNamed) {
  if (!is_one_process()) GTEST_SKIP() << "workers tell of it at the end of the job, or by the timeout";
  const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
    if (rank == 1) receive(backend, 0, {2, 3}, kDouble);
  });
  EXPECT_EQ(count_errors<CollectiveMismatch>(errors,
                                             "replica 1 waits for a message Double[2,3] from replica 0, "
                                             "which returned without sending it"),
            1);
}

TEST_P(Messages, AReceiverThatReturnsWithoutReceivingIsNamed) {
  if (!is_one_process()) GTEST_SKIP() << "other workers' messages may still be on their way";
  ReplicaGroup group(num_ranks());
  const auto message = message_of<CollectiveMismatch>([&] {
    group.run([&](int rank) {
      if (rank == 0) send(group.backend(rank), torch::ones({4}), 1);
    });
  });
  EXPECT_THAT(message,
              HasSubstr("[send] replica 0 sent a message Float[4] to replica 1, which returned without "
                        "receiving it"));
}

// A message of the last run must not be taken for one of this run.
TEST_P(Messages, OfAnEarlierRunAreMismatchesBetweenWorkers) {
  if (is_one_process()) GTEST_SKIP() << "within a process the earlier run fails";
  const auto errors = run_workers(GetParam(), [&](WorkerGroup& group) {
    WorkerReplicas replicas(group);
    const int last = num_ranks() - 1;
    replicas.run([&](int rank, c10d::Backend& backend) {
      const auto own = BackendPointer::reclaim_copy(&backend);
      if (rank == 0) send(own, torch::ones({4}), last);
    });
    replicas.run([&](int rank, c10d::Backend& backend) {
      const auto own = BackendPointer::reclaim_copy(&backend);
      if (rank == last) receive(own, 0, {4}, at::kFloat);
    });
  });
  EXPECT_GE(count_errors<CollectiveMismatch>(errors, "in run 1") +
                count_errors<CollectiveMismatch>(errors, "in run 2"),
            1);
}

TEST_P(Messages, AWorkerThatFailsInsteadOfSendingIsNamed) {
  if (is_one_process()) GTEST_SKIP() << "there are no other workers";
  const int last = num_ranks() - 1;
  const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
    if (rank == 0) receive(backend, last, {4}, at::kFloat);
    if (rank == last) throw std::domain_error("planted");
  });
  const std::string failed = "worker " + std::to_string(GetParam().size() - 1);
  EXPECT_GE(count_errors<PeerLost>(errors, failed), 1);
  EXPECT_EQ(count_errors<std::domain_error>(errors, "planted"), 1);
}

TEST(MessageTimeouts, NameTheReplicaThatIsMissing) {
  ReplicaGroup group(2, LocalAlgorithm::kOneDevice, std::chrono::milliseconds(300));
  const auto errors = group.errors_of([&](int rank) {
    if (rank == 1) receive(group.backend(rank), 0, {2}, at::kFloat);
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(900));
  });
  EXPECT_EQ(
      count_errors<CollectiveAborted>(
          errors, "a message Float[2] from replica 0 to replica 1 timed out after 0.3 s; missing: replica 0"),
      1);
}

TEST(MessageTimeouts, AFailureOfTheSenderEndsTheWait) {
  ReplicaGroup group(2);
  const auto errors = group.errors_of([&](int rank) {
    if (rank == 1) receive(group.backend(rank), 0, {2}, at::kFloat);
    if (rank == 0) throw std::domain_error("planted");
  });
  EXPECT_EQ(count_errors<CollectiveAborted>(errors, "another replica failed"), 1);
}

}  // namespace
}  // namespace lockstep
