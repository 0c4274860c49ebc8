#include <gmock/gmock.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/runtime/collectives/collective_worlds.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

class AllToAll : public CollectiveWorlds {
 protected:
  static int64_t rows(int from, int to) { return (from + 2 * to) % 3; }  // some pairs exchange nothing
  static at::Tensor value_of(int from, int to, at::ScalarType dtype = at::kDouble) {
    return torch::full({rows(from, to), 2}, 10 * from + to, dtype);
  }
  static Tensors values_of(int from) {
    Tensors values;
    for (int to = 0; to < num_ranks(); ++to) values.push_back(value_of(from, to));
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, AllToAll, collective_worlds());

TEST_P(AllToAll, BringsEachTensorToItsReplicaInEachDtype) {
  run([&](int rank, const BackendPointer& backend) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
          at::kByte, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
      Tensors values;
      for (int to = 0; to < num_ranks(); ++to) values.push_back(value_of(rank, to, dtype));
      const auto received = all_to_all(backend, values);
      ASSERT_EQ(received.size(), values.size());
      for (int from = 0; from < num_ranks(); ++from)
        EXPECT_TRUE(torch::equal(received[static_cast<size_t>(from)], value_of(from, rank, dtype))) << dtype;
    }
  });
}

TEST_P(AllToAll, TakesTensorsThatAreNotContiguous) {
  run([&](int rank, const BackendPointer& backend) {
    Tensors values;
    for (int to = 0; to < num_ranks(); ++to)
      values.push_back((torch::arange(12, torch::kDouble).view({3, 4}) + 100 * rank + 10 * to).t());
    const auto received = all_to_all(backend, values);
    for (int from = 0; from < num_ranks(); ++from) {
      EXPECT_TRUE(
          torch::equal(received[static_cast<size_t>(from)],
                       (torch::arange(12, torch::kDouble).view({3, 4}) + 100 * from + 10 * rank).t()));
    }
  });
}

// Oracle: each value and its weight meet on the replica that gets the value.
TEST_P(AllToAll, BringsGradientsBackToTheReplicasThatSentTheValues) {
  run([&](int rank, const BackendPointer& backend) {
    Tensors values = values_of(rank);
    for (auto& value : values) value.requires_grad_();
    const auto received = all_to_all(backend, values);
    at::Tensor loss = torch::zeros({}, torch::kDouble);
    for (const auto& value : received) loss = loss + value.pow(2).sum() * (rank + 1.0);
    loss.backward();
    for (int to = 0; to < num_ranks(); ++to) {
      EXPECT_TRUE(torch::equal(values[static_cast<size_t>(to)].grad(), 2 * (to + 1.0) * value_of(rank, to)))
          << to;
    }
  });
}

TEST_P(AllToAll, HasTheGradientsOfDifferences) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    const auto input = (torch::arange(2 * ranks * 2, torch::kDouble).view({2, ranks * 2}) + rank).sin();
    expect_gradients_of_differences(backend, input, [&](const at::Tensor& own) {
      return (all_to_all(backend, own * own, 1, 0) * (rank + 0.5)).exp().sum();
    });
    expect_gradients_of_differences(backend, input, [&](const at::Tensor& own) {
      Tensors parts;
      for (int to = 0; to < ranks; ++to)
        parts.push_back(own.narrow(1, 2 * to, 2).slice(0, rows(rank, to) % 2));
      at::Tensor loss = torch::zeros({}, torch::kDouble);
      for (const auto& part : all_to_all(backend, parts)) loss = loss + part.pow(3).sum() * (rank + 0.5);
      return loss;
    });
  });
}

TEST_P(AllToAll, AGradientOfAGradientGoesThroughIt) {
  run([&](int rank, const BackendPointer& backend) {
    auto value =
        (torch::arange(num_ranks() * 2, torch::kDouble).view({num_ranks(), 2}) + rank).requires_grad_();
    const auto received = all_to_all(backend, value, 0, 0);
    const auto gradient = torch::autograd::grad({received.pow(3).sum()}, {value}, {}, std::nullopt,
                                                /*create_graph=*/true)[0];
    gradient.square().sum().backward();
    // The gradient is 3 v^2, so its square's is 36 v^3.
    EXPECT_TRUE(torch::allclose(value.grad(), 36 * value.detach().pow(3)));
  });
}

// Oracle: all replicas' values, cut and joined on one thread.
TEST_P(AllToAll, OfOneTensorMovesTheReplicasFromOneAxisToAnother) {
  const int ranks = num_ranks();
  const auto whole_of = [&](int rank) {
    return torch::arange(ranks * 2 * 3 * ranks, torch::kDouble).view({ranks * 2, 3, ranks}) + 1000 * rank;
  };
  run([&](int rank, const BackendPointer& backend) {
    for (const int64_t split : {0, 2, -1}) {
      for (const int64_t concat : {0, 1, 2, -2}) {
        Tensors parts;
        for (int from = 0; from < ranks; ++from)
          parts.push_back(whole_of(from).chunk(ranks, split)[static_cast<size_t>(rank)]);
        const auto moved = all_to_all(backend, whole_of(rank), split, concat);
        EXPECT_TRUE(torch::equal(moved, torch::cat(parts, concat))) << split << " to " << concat;
        EXPECT_TRUE(torch::equal(all_to_all(backend, moved, concat, split), whole_of(rank)));
      }
    }
    EXPECT_EQ(all_to_all(backend, torch::ones({0, 3}), 0, 1).sizes(), at::IntArrayRef({0, 3 * ranks}));
  });
}

TEST_P(AllToAll, InPlaceFillsOutputsOfAnyShapes) {
  run([&](int rank, const BackendPointer& backend) {
    Tensors inputs;
    Tensors outputs;
    for (int other = 0; other < num_ranks(); ++other) {
      inputs.push_back(torch::full({rank + 1, other + 1}, 10 * rank + other, torch::kFloat));
      outputs.push_back(torch::empty({other + 1, rank + 1}, torch::kFloat));
    }
    all_to_all_(*backend, outputs, inputs);
    for (int from = 0; from < num_ranks(); ++from)
      EXPECT_TRUE(outputs[static_cast<size_t>(from)].eq(10 * from + rank).all().item<bool>());
  });
}

TEST_P(AllToAll, RefusesWhatItCannotDo) {
  const int ranks = num_ranks();
  run([&](int, const BackendPointer& backend) {
    const auto refusal = [](const std::function<void()>& call) { return message_of<InvalidArgument>(call); };
    EXPECT_THAT(
        refusal([&] { all_to_all(backend, Tensors(static_cast<size_t>(ranks + 1), torch::ones({1}))); }),
        HasSubstr("[all_to_all] expected a tensor for each of " + std::to_string(ranks) + " replicas"));
    EXPECT_THAT(refusal([&] { all_to_all(backend, Tensors(static_cast<size_t>(ranks), torch::ones({}))); }),
                HasSubstr("[all_to_all] expected an axis"));
    Tensors alike(static_cast<size_t>(ranks), torch::ones({2, 2}));
    EXPECT_THAT(refusal([&] { all_to_all_(*backend, alike, alike); }), HasSubstr("share no memory"));
    if (ranks == 1) return;
    EXPECT_THAT(refusal([&] { all_to_all(backend, torch::ones({ranks + 1}), 0, 0); }),
                HasSubstr("[all_to_all] expected a multiple of " + std::to_string(ranks)));
    alike[1] = torch::ones({2, 3});
    EXPECT_THAT(refusal([&] { all_to_all(backend, alike); }),
                HasSubstr("differ in the first dimension only"));
    alike[1] = torch::ones({2, 2}, torch::kLong);
    EXPECT_THAT(refusal([&] { all_to_all(backend, alike); }), HasSubstr("expected tensors of one dtype"));
  });
}

TEST_P(AllToAll, OfTensorsThatReplicasHaveInOtherShapesIsAMismatch) {
  if (num_ranks() == 1) GTEST_SKIP() << "one replica has nobody to differ from";
  const int64_t ranks = num_ranks();
  const auto lists = errors_of([&](int rank, const BackendPointer& backend) {
    all_to_all(backend, Tensors(static_cast<size_t>(ranks), torch::ones({2, rank == 0 ? 3 : 4})));
  });
  EXPECT_GE(count_errors<CollectiveMismatch>(lists, "other dimensions after the first"), 1);
  const auto single = errors_of([&](int rank, const BackendPointer& backend) {
    all_to_all(backend, torch::ones({rank == 0 ? ranks : 2 * ranks, 3}), 0, 0);
  });
  EXPECT_GE(count_errors<CollectiveMismatch>(single, "all_to_all Float["), 1);
}

TEST_P(AllToAll, ShapesThatDoNotFitAreAMismatch) {
  if (num_ranks() == 1) GTEST_SKIP() << "one replica has nobody to differ from";
  // As many bytes, so that only the shapes tell, and more.
  const bool is_gloo = !is_one_process() && tested_transport() == WorkerTransport::kGloo;
  for (const int64_t rows : {3, 5}) {
    if (rows == 5 && is_gloo) continue;  // Gloo itself fails
    const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
      Tensors inputs(static_cast<size_t>(num_ranks()), torch::ones({2, 3}));
      Tensors outputs;
      for (int from = 0; from < num_ranks(); ++from)
        outputs.push_back(from == num_ranks() - 1 && rank == 0 ? torch::ones({rows, 2})
                                                               : torch::ones({2, 3}));
      all_to_all_(*backend, outputs, inputs);
    });
    EXPECT_GE(count_errors<CollectiveMismatch>(errors, "all_to_all"), 1);
  }
}

}  // namespace
}  // namespace lockstep
