#include "lockstep/runtime/collectives/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

at::Tensor value_of(int rank, int64_t rows) {
  return torch::arange(rows * 3, torch::kDouble).view({rows, 3}) * 0.25 + rank;
}

class CollectivesOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesOf, testing::Values(1, 2, 3, 4));

// Oracle for the gradients: the same function of all ranks' values in one graph, on one thread.
TEST_P(CollectivesOf, AllReduceHasTheGradientOfTheSumOrMeanOfAllValues) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  for (const auto op : {ReduceOp::kSum, ReduceOp::kMean}) {
    std::vector<at::Tensor> inputs, weights, copies;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.push_back(value_of(rank, 2).requires_grad_());
      copies.push_back(value_of(rank, 2).requires_grad_());
      weights.push_back(value_of(10 * rank, 2));
    }
    at::Tensor total = torch::stack(copies).sum(0);
    if (op == ReduceOp::kMean) total = total / ranks;
    at::Tensor loss = torch::zeros({}, torch::kDouble);
    for (const auto& weight : weights) loss = loss + (total * total * weight).sum();
    loss.backward();

    group.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      const auto result = all_reduce(group.backend(rank), op, {inputs[self]})[0];
      EXPECT_TRUE(torch::allclose(result, total, 0, 1e-12));
      EXPECT_FALSE(result.is_alias_of(inputs[self]));
      EXPECT_TRUE(torch::equal(inputs[self].detach(), value_of(rank, 2)));
      (result * result * weights[self]).sum().backward();
    });
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      EXPECT_TRUE(torch::allclose(inputs[rank].grad(), copies[rank].grad(), 0, 1e-9)) << "replica " << rank;
  }
}

TEST_P(CollectivesOf, AllReduceOfSeveralTensorsKeepsThemApart) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  group.run([&](int rank) {
    auto a = torch::full({2}, rank + 1.0).requires_grad_();
    auto b = torch::full({3, 1}, 10.0 * rank);
    auto c = torch::full({}, 2.0 * rank).requires_grad_();
    const auto sums = all_reduce(group.backend(rank), ReduceOp::kSum, {a, b, c});
    const double triangle = ranks * (ranks - 1) / 2.0;
    EXPECT_TRUE(sums[0].eq(triangle + ranks).all().item<bool>());
    EXPECT_TRUE(sums[1].eq(10 * triangle).all().item<bool>());
    EXPECT_EQ(sums[2].item<double>(), 2 * triangle);
    (sums[0].sum() + 5 * sums[2]).backward();
    EXPECT_TRUE(a.grad().eq(ranks).all().item<bool>());
    EXPECT_EQ(c.grad().item<double>(), 5.0 * ranks);
  });
}

TEST_P(CollectivesOf, AllGatherConcatenatesAndEachRankGetsItsSlicesGradient) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  for (const int64_t axis : {0, 1, -1}) {
    std::vector<at::Tensor> inputs, copies;
    for (int rank = 0; rank < ranks; ++rank) {
      // 0, 2, 4 ... rows: sizes differ along the axis, and one rank brings nothing.
      auto value = value_of(rank, 2 * rank);
      if (axis != 0) value = value.t();  // not contiguous
      inputs.push_back(value.detach().requires_grad_());
      copies.push_back(value.detach().clone().requires_grad_());
    }
    const auto whole = torch::cat(copies, axis);
    const auto weight = torch::arange(whole.numel(), torch::kDouble).view(whole.sizes());
    at::Tensor loss = torch::zeros({}, torch::kDouble);
    for (int rank = 0; rank < ranks; ++rank) loss = loss + (whole * whole * (weight + rank)).sum();
    loss.backward();

    group.run([&](int rank) {
      const auto self = static_cast<size_t>(rank);
      const auto result = all_gather(group.backend(rank), inputs[self], axis);
      EXPECT_TRUE(torch::equal(result, whole));
      (result * result * (weight + rank)).sum().backward();
    });
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      EXPECT_TRUE(torch::allclose(inputs[rank].grad(), copies[rank].grad(), 0, 1e-9)) << "replica " << rank;
    }
  }
}

// A gradient penalty. Oracle: one graph, in which the sum of all ranks' losses gives the ranks' gradients,
// and the sum of all penalties gives the second gradients.
TEST_P(CollectivesOf, AGradientOfAGradientGoesThroughBothOfThem) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  const auto gradient_of = [](const at::Tensor& loss, const std::vector<at::Tensor>& inputs) {
    return torch::autograd::grad({loss}, inputs, {}, std::nullopt, /*create_graph=*/true);
  };
  const auto loss_of = [](const at::Tensor& sum, const at::Tensor& all, int rank) {
    return sum.pow(3).sum() * (rank + 1.0) + (all.pow(3) * (rank + 2.0)).sum();
  };
  std::vector<at::Tensor> inputs, copies;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(value_of(rank, 2).requires_grad_());
    copies.push_back(value_of(rank, 2).requires_grad_());
  }
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    loss = loss + loss_of(torch::stack(copies).sum(0), torch::cat(copies), rank);
  }
  at::Tensor penalty = torch::zeros({}, torch::kDouble);
  for (const auto& gradient : gradient_of(loss, copies)) penalty = penalty + gradient.square().sum();
  penalty.backward();

  group.run([&](int rank) {
    const auto self = static_cast<size_t>(rank);
    const auto& backend = group.backend(rank);
    const auto sum = all_reduce(backend, ReduceOp::kSum, {inputs[self]})[0];
    const auto all = all_gather(backend, inputs[self], 0);
    gradient_of(loss_of(sum, all, rank), {inputs[self]})[0].square().sum().backward();
  });
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    EXPECT_TRUE(torch::allclose(inputs[rank].grad(), copies[rank].grad(), 1e-12, 1e-9)) << "replica " << rank;
  }
}

TEST_P(CollectivesOf, AllReduceLeavesIntegersBesideAGradientWithoutOne) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  group.run([&](int rank) {
    auto values = torch::full({2}, rank + 1.0).requires_grad_();
    const auto sums =
        all_reduce(group.backend(rank), ReduceOp::kSum, {torch::full({2}, rank, torch::kLong), values});
    EXPECT_FALSE(sums[0].requires_grad());
    EXPECT_TRUE(sums[0].eq(ranks * (ranks - 1) / 2).all().item<bool>());
    sums[1].sum().backward();
    EXPECT_TRUE(values.grad().eq(ranks).all().item<bool>());
  });
}

// LibTorch calls a node with undefined gradients if the users of its result have none to give.
TEST_P(CollectivesOf, ARankWithoutAGradientTakesPartWithZeros) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  group.run([&](int rank) {
    auto value = torch::full({2}, rank + 1.0).requires_grad_();
    auto results = all_reduce(group.backend(rank), ReduceOp::kSum, {value, value});
    results.push_back(all_gather(group.backend(rank), value, 0));
    at::Tensor loss = torch::zeros({});
    for (const auto& result : results) {
      const auto used = rank == 0 ? torch::autograd::UndefinedGrad()({result})[0] : result;
      loss = loss + used.sum();
    }
    loss.backward();
    EXPECT_TRUE(value.grad().eq(3.0 * (ranks - 1)).all().item<bool>()) << value.grad();
  });
}

TEST_P(CollectivesOf, NothingIsRecordedWithoutAGradient) {
  ReplicaGroup group(GetParam());
  group.run([&](int rank) {
    const auto leaf = torch::ones({2}).requires_grad_();
    EXPECT_FALSE(all_gather(group.backend(rank), leaf.detach(), 0).requires_grad());
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(all_reduce(group.backend(rank), ReduceOp::kSum, {leaf})[0].requires_grad());
    EXPECT_FALSE(all_gather(group.backend(rank), leaf, 0).requires_grad());
  });
}

TEST_P(CollectivesOf, InPlaceOnesWriteLeavesThatRequireAGradient) {
  const int ranks = GetParam();
  ReplicaGroup group(ranks);
  group.run([&](int rank) {
    auto leaf = torch::full({3}, rank + 1.0).requires_grad_();
    all_reduce_(*group.backend(rank), ReduceOp::kMean, {leaf});
    EXPECT_TRUE(leaf.is_leaf());
    EXPECT_TRUE(leaf.eq((ranks + 1) / 2.0).all().item<bool>());
    auto other = torch::full({3}, rank + 1.0).requires_grad_();
    broadcast_(*group.backend(rank), ranks - 1, {other});
    EXPECT_TRUE(other.is_leaf());
    EXPECT_TRUE(other.eq(ranks).all().item<bool>());
    EXPECT_TRUE(torch::equal(
        gather_rows(group.backend(rank), torch::full({rank, 2}, rank, torch::kLong)),
        torch::repeat_interleave(torch::arange(ranks), torch::arange(ranks)).unsqueeze(1).repeat({1, 2})));
  });
}

/// Keeps what it is given, as the thread of a slower rank does for a while.
class KeepingBackend final : public c10d::Backend {
 public:
  KeepingBackend() : Backend(/*rank=*/0, /*size=*/1) {}
  const std::string getBackendName() const override { return "keeping"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    return keep(tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions&) override {
    return keep(tensors);
  }
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions&) override {
    keep(outputs);
    return keep(inputs);
  }

 private:
  struct Done final : c10d::Work {
    bool wait(std::chrono::milliseconds) override { return true; }
  };
  c10::intrusive_ptr<c10d::Work> keep(const std::vector<at::Tensor>& tensors) {
    kept_.insert(kept_.end(), tensors.begin(), tensors.end());
    return c10::make_intrusive<Done>();
  }

  std::vector<at::Tensor> kept_;
};

// A result gets a place in a graph after the collective, which must end with the result.
TEST(Collectives, LeaveNoHandleOfATensorToOtherRanks) {
  KeepingBackend backend;
  const auto sum = torch::ones({2}), source = torch::ones({2}), sent = torch::ones({2}),
             got = torch::ones({2});
  all_reduce_(backend, ReduceOp::kSum, {sum});
  broadcast_(backend, 0, {source});
  all_to_all_(backend, {got}, {sent});
  for (const auto& tensor : {sum, source, sent, got}) EXPECT_EQ(tensor.use_count(), 2);  // and the list's
}

TEST(Collectives, NameTheirWrongArguments) {
  ReplicaGroup group(2);
  const auto& backend = group.backend(0);
  EXPECT_THROW(broadcast_(*backend, 2, {torch::ones({1})}), InvalidArgument);
  EXPECT_THROW(broadcast_(*backend, -1, {torch::ones({1})}), InvalidArgument);
  EXPECT_THROW(all_gather(backend, torch::ones({}), 0), InvalidArgument);
  EXPECT_THROW(all_gather(backend, torch::ones({2}), 1), InvalidArgument);
  EXPECT_THROW(all_gather(backend, torch::ones({2}), -2), InvalidArgument);
  EXPECT_THROW(all_reduce_(*backend, ReduceOp::kMean, {torch::ones({2}, torch::kLong)}), InvalidArgument);
  // Sizes differ along another axis.
  EXPECT_THROW(group.run([&](int rank) {
    all_gather(group.backend(rank), torch::ones({1, rank + 1}), 0);
  }),
               CollectiveMismatch);
}

TEST(Collectives, AMeanOfIntegersIsRefusedWithTheDtype) {
  ReplicaGroup group(1);
  try {
    all_reduce_(*group.backend(0), ReduceOp::kMean, {torch::ones({2}, torch::kInt)});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Int"));
  }
}

}  // namespace
}  // namespace lockstep
