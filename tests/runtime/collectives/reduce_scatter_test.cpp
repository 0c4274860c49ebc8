#include <gmock/gmock.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/runtime/collectives/collective_worlds.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class ReduceScatter : public CollectiveWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, ReduceScatter, collective_worlds());

/// Values whose sum depends on the order in which they are added.
at::Tensor values_of(int rank, at::IntArrayRef shape, at::ScalarType dtype = at::kDouble) {
  const auto numbers = torch::arange(c10::multiply_integers(shape), torch::kDouble).view(shape);
  return ((numbers * 1.37 + rank * 0.731).sin() * (rank % 2 == 0 ? 1000 : 1)).to(dtype);
}

at::Tensor part_of(const at::Tensor& sum, int rank, int ranks, int64_t axis) {
  return sum.tensor_split(ranks, axis)[static_cast<size_t>(rank)];
}

TEST_P(ReduceScatter, HasTheBitsOfTheAllReducedSumInEachDtype) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
          at::kByte, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
      if (!has_fixed_order() && (dtype == at::kHalf || dtype == at::kBFloat16)) continue;
      const auto own = values_of(rank, {7, 3}, dtype);
      const auto expected = all_reduce(backend, ReduceOp::kSum, {own})[0];
      for (const int64_t axis : {0, 1, -1}) {
        const auto part = reduce_scatter(backend, ReduceOp::kSum, own, axis);
        const auto wanted = part_of(expected, rank, ranks, axis);
        EXPECT_EQ(part.sizes(), wanted.sizes());
        EXPECT_TRUE(has_fixed_order() ? torch::equal(part, wanted) : torch::allclose(part, wanted, 1e-3))
            << dtype << " along " << axis;
      }
    }
  });
}

TEST_P(ReduceScatter, OfManyElementsIsCutIntoPartsThatThreadsShare) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    const auto own = values_of(rank, {ranks, 100'003}, at::kFloat);
    for (const auto op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const auto wanted = part_of(all_reduce(backend, op, {own})[0], rank, ranks, 0);
      const auto part = reduce_scatter(backend, op, own, 0);
      EXPECT_TRUE(has_fixed_order() ? torch::equal(part, wanted) : torch::allclose(part, wanted, 1e-3));
    }
  });
}

TEST_P(ReduceScatter, LeavesItsInputAndTakesTensorsThatAreNotContiguousOrEmpty) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    const auto own = values_of(rank, {3, 8});
    const auto before = own.clone();
    const auto part = reduce_scatter(backend, ReduceOp::kSum, own.t().slice(0, 1, 8, 2), 0);
    EXPECT_TRUE(torch::equal(own, before));
    const auto sum = all_reduce(backend, ReduceOp::kSum, {own})[0].t().slice(0, 1, 8, 2);
    EXPECT_TRUE(torch::allclose(part, part_of(sum, rank, ranks, 0)));
    EXPECT_EQ(reduce_scatter(backend, ReduceOp::kSum, torch::ones({0, 3}), 0).sizes(),
              at::IntArrayRef({0, 3}));
  });
}

// Oracle for the gradients: the same function of all ranks' values in one graph, on one thread.
TEST_P(ReduceScatter, HasTheGradientOfTheSumOrMeanOfAllValues) {
  const int ranks = num_ranks();
  for (const auto op : {ReduceOp::kSum, ReduceOp::kMean}) {
    for (const int64_t axis : {0, 1}) {
      std::vector<at::Tensor> inputs, copies;
      for (int rank = 0; rank < ranks; ++rank) {
        inputs.push_back(values_of(rank, {4, 6}).requires_grad_());
        copies.push_back(values_of(rank, {4, 6}).requires_grad_());
      }
      at::Tensor total = torch::stack(copies).sum(0);
      if (op == ReduceOp::kMean) total = total / ranks;
      at::Tensor loss = torch::zeros({}, torch::kDouble);
      for (int rank = 0; rank < ranks; ++rank)
        loss = loss + part_of(total, rank, ranks, axis).pow(2).sum() * (rank + 1.0);
      loss.backward();

      run([&](int rank, const BackendPointer& backend) {
        const auto part = reduce_scatter(backend, op, inputs[static_cast<size_t>(rank)], axis);
        (part.pow(2).sum() * (rank + 1.0)).backward();
      });
      for (size_t rank = 0; rank < inputs.size(); ++rank)
        EXPECT_TRUE(torch::allclose(inputs[rank].grad(), copies[rank].grad(), 1e-12)) << "replica " << rank;
    }
  }
}

TEST_P(ReduceScatter, AGradientOfAGradientGoesThroughIt) {
  const int ranks = num_ranks();
  const auto gradient_of = [](const at::Tensor& loss, const std::vector<at::Tensor>& inputs) {
    return torch::autograd::grad({loss}, inputs, {}, std::nullopt, /*create_graph=*/true);
  };
  std::vector<at::Tensor> inputs, copies;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back((values_of(rank, {5, 2}) / 500).requires_grad_());
    copies.push_back((values_of(rank, {5, 2}) / 500).requires_grad_());
  }
  const at::Tensor total = torch::stack(copies).sum(0);
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (int rank = 0; rank < ranks; ++rank)
    loss = loss + part_of(total, rank, ranks, 0).pow(3).sum() * (rank + 1.0);
  at::Tensor penalty = torch::zeros({}, torch::kDouble);
  for (const auto& gradient : gradient_of(loss, copies)) penalty = penalty + gradient.square().sum();
  penalty.backward();

  run([&](int rank, const BackendPointer& backend) {
    const auto& own = inputs[static_cast<size_t>(rank)];
    const auto part = reduce_scatter(backend, ReduceOp::kSum, own, 0);
    gradient_of(part.pow(3).sum() * (rank + 1.0), {own})[0].square().sum().backward();
  });
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    EXPECT_TRUE(torch::allclose(inputs[rank].grad(), copies[rank].grad(), 1e-10)) << "replica " << rank;
}

TEST_P(ReduceScatter, AndAllGatherHaveTheGradientsOfDifferences) {
  run([&](int rank, const BackendPointer& backend) {
    const auto input = values_of(rank, {2, 3}).sin();
    for (const auto op : {ReduceOp::kSum, ReduceOp::kMean}) {
      expect_gradients_of_differences(backend, input, [&](const at::Tensor& own) {
        return reduce_scatter(backend, op, own * own, 1).exp().sum() * (rank + 0.5);
      });
    }
    expect_gradients_of_differences(backend, input, [&](const at::Tensor& own) {
      return (all_gather(backend, own, 1).sin() * (rank + 0.5)).pow(2).sum();
    });
  });
}

TEST_P(ReduceScatter, InPlaceWritesThePartAndAllGatherRestoresTheWhole) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    const auto whole = values_of(rank, {ranks, 2, 3});
    const auto sum = all_reduce(backend, ReduceOp::kSum, {whole})[0];
    const auto part = torch::empty({2, 3}, torch::kDouble);
    reduce_scatter_(*backend, ReduceOp::kSum, part, whole);
    EXPECT_TRUE(torch::allclose(part, sum[rank], 1e-12));
    EXPECT_TRUE(torch::equal(whole, values_of(rank, {ranks, 2, 3})));

    // The own part may be both.
    const auto shared = whole.clone();
    reduce_scatter_(*backend, ReduceOp::kSum, shared[rank], shared);
    EXPECT_TRUE(torch::equal(shared[rank], part));
    all_gather_(*backend, shared, shared[rank]);
    EXPECT_TRUE(torch::allclose(shared, sum, 1e-12));
    all_gather_(*backend, shared, part);
    EXPECT_TRUE(torch::allclose(shared, sum, 1e-12));
  });
}

TEST_P(ReduceScatter, TakesConjugateViews) {
  run([&](int rank, const BackendPointer& backend) {
    const auto own = torch::complex(values_of(rank, {6, 2}), values_of(rank + 1, {6, 2})).conj();
    const auto sum = all_reduce(backend, ReduceOp::kSum, {own})[0];
    const auto part = reduce_scatter(backend, ReduceOp::kSum, own, 0);
    EXPECT_TRUE(torch::allclose(part, part_of(sum, rank, num_ranks(), 0)));
    EXPECT_TRUE(torch::allclose(all_gather(backend, part.conj(), 0), sum.conj()));
    const auto output = torch::empty({2}, at::kComplexDouble).conj();
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_gather_(*backend, torch::empty({num_ranks(), 2}, at::kComplexDouble).conj(), output);
                }),
                HasSubstr("[all_gather] expected outputs with values of their own"));
  });
}

TEST_P(ReduceScatter, InPlaceIsNoticedByAutograd) {
  run([&](int, const BackendPointer& backend) {
    const auto whole = torch::ones({num_ranks(), 2}, at::kDouble);
    auto weight = torch::ones({num_ranks(), 2}, at::kDouble).requires_grad_();
    const auto product = whole * weight;
    all_gather_(*backend, whole, torch::full({2}, 3.0, at::kDouble));
    EXPECT_THROW(product.sum().backward(), c10::Error);
  });
}

TEST_P(ReduceScatter, RefusesWhatItCannotDo) {
  const int ranks = num_ranks();
  run([&](int, const BackendPointer& backend) {
    const auto refusal = [](const std::function<void()>& call) { return message_of<InvalidArgument>(call); };
    EXPECT_THAT(refusal([&] { reduce_scatter(backend, ReduceOp::kSum, torch::ones({2}), 1); }),
                HasSubstr("[reduce_scatter] expected an axis of a tensor with 1 dimensions, but got 1"));
    EXPECT_THAT(refusal([&] { reduce_scatter(backend, ReduceOp::kMean, torch::ones({2}, torch::kLong), 0); }),
                HasSubstr("[reduce_scatter] expected a floating-point tensor for a mean, but got Long"));
    const auto whole = torch::ones({ranks, 4});
    EXPECT_THAT(refusal([&] { reduce_scatter_(*backend, ReduceOp::kSum, torch::ones({5}), whole); }),
                HasSubstr("[reduce_scatter] expected a contiguous tensor of"));
    EXPECT_THAT(refusal([&] { all_gather_(*backend, whole, torch::ones({5})); }),
                HasSubstr("[all_gather] expected a contiguous tensor of"));
    if (ranks > 1) {
      const auto crossing = whole.view({-1}).narrow(0, 2, 4);
      EXPECT_THAT(refusal([&] { reduce_scatter_(*backend, ReduceOp::kSum, crossing, whole); }),
                  HasSubstr("share no memory"));
      EXPECT_THAT(refusal([&] { all_gather_(*backend, whole, crossing); }), HasSubstr("share no memory"));
    }
  });
}

TEST_P(ReduceScatter, OfAnotherShapeIsAMismatchThatNamesBothCalls) {
  if (num_ranks() == 1) GTEST_SKIP() << "one replica has nobody to differ from";
  const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
    reduce_scatter(backend, ReduceOp::kSum, torch::ones({12, rank == 0 ? 1 : 2}), 0);
  });
  EXPECT_GE(count_errors<CollectiveMismatch>(errors, "reduce_scatter sum"), 1);
}

}  // namespace
}  // namespace lockstep
