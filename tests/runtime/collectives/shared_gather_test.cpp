#include "lockstep/runtime/collectives/shared_gather.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <mutex>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/runtime/collectives/collective_worlds.h"

namespace lockstep {
namespace {

class SharedGather : public CollectiveWorlds {
 protected:
  /// Returns the worker to which a rank belongs.
  static size_t worker_of(int rank) {
    size_t worker = 0;
    for (int next = GetParam()[0]; rank >= next; next += GetParam()[worker]) ++worker;
    return worker;
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, SharedGather, collective_worlds());

SharesGathers& sharing_of(const BackendPointer& backend) {
  return dynamic_cast<SharesGathers&>(*backend);
}

at::Tensor part_of_rank(int rank, at::IntArrayRef shape = {3, 2}, at::ScalarType dtype = at::kFloat) {
  return (torch::arange(c10::multiply_integers(shape), torch::kDouble).view(shape) + 100 * rank).to(dtype);
}

at::Tensor parts_of_all(int ranks, at::IntArrayRef shape = {3, 2}, at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(part_of_rank(rank, shape, dtype));
  return torch::stack(parts);
}

TEST_P(SharedGather, HasTheBitsOfAllParts) {
  run([&](int rank, const BackendPointer& backend) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kInt, at::kComplexFloat}) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 2}, {1}, {100'003}, {0}}) {
        const auto gather = sharing_of(backend).gather_shared(part_of_rank(rank, shape, dtype));
        gather.work->wait();
        EXPECT_TRUE(torch::equal(*gather.whole, parts_of_all(num_ranks(), shape, dtype)))
            << dtype << " of shape " << at::IntArrayRef(shape);
      }
    }
  });
}

TEST_P(SharedGather, TakesPartsThatAreNotContiguousAndRequireAGradient) {
  run([&](int rank, const BackendPointer& backend) {
    const auto part = part_of_rank(rank).requires_grad_();
    const auto gather = sharing_of(backend).gather_shared(part.t());
    gather.work->wait();
    EXPECT_FALSE(gather.whole->requires_grad());
    EXPECT_TRUE(torch::equal(*gather.whole, parts_of_all(num_ranks()).transpose(1, 2)));
  });
}

TEST_P(SharedGather, RanksMayBeInInferenceModeOrNot) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    run([&](int rank, const BackendPointer& backend) {
      for (const bool all : {false, true}) {
        const c10::InferenceMode mode(all || rank % 2 == 0);
        const auto gather = sharing_of(backend).gather_shared(part_of_rank(rank));
        gather.work->wait();
        EXPECT_FALSE(gather.whole->is_inference());
        EXPECT_TRUE(torch::equal(*gather.whole, parts_of_all(num_ranks())));
      }
    });
  }
}

TEST_P(SharedGather, RanksOfAProcessHaveTheSameMemory) {
  std::mutex mutex;
  std::vector<std::vector<const void*>> by_worker(GetParam().size());
  run([&](int rank, const BackendPointer& backend) {
    const auto gather = sharing_of(backend).gather_shared(part_of_rank(rank));
    gather.work->wait();
    {
      const std::lock_guard lock(mutex);
      by_worker[worker_of(rank)].push_back(gather.whole->const_data_ptr());
    }
    all_reduce(backend, ReduceOp::kSum, {torch::ones({1})});  // Nobody frees it before.
  });
  for (size_t worker = 0; worker < by_worker.size(); ++worker) {
    ASSERT_EQ(by_worker[worker].size(), static_cast<size_t>(GetParam()[worker]));
    for (const void* pointer : by_worker[worker]) EXPECT_EQ(pointer, by_worker[worker].front());
  }
}

TEST_P(SharedGather, TellsHowManyRanksShare) {
  run([&](int rank, const BackendPointer& backend) {
    EXPECT_EQ(sharing_of(backend).num_sharing(), GetParam()[worker_of(rank)]);
  });
}

TEST_P(SharedGather, MatchesGathersIntoMemoryOfTheirOwn) {
  const int ranks = num_ranks();
  run([&](int rank, const BackendPointer& backend) {
    auto part = part_of_rank(rank);
    if (rank % 2 == 0) {
      const auto gather = sharing_of(backend).gather_shared(part);
      gather.work->wait();
      EXPECT_TRUE(torch::equal(*gather.whole, parts_of_all(ranks)));
    } else {
      auto whole = torch::empty({ranks, 3, 2});
      backend->_allgather_base(whole, part)->wait();
      EXPECT_TRUE(torch::equal(whole, parts_of_all(ranks)));
    }
  });
}

TEST_P(SharedGather, SeveralMayBeUnderWay) {
  run([&](int rank, const BackendPointer& backend) {
    std::vector<SharesGathers::Gather> gathers;
    for (int64_t i = 0; i < 5; ++i)
      gathers.push_back(sharing_of(backend).gather_shared(part_of_rank(rank, {i, 7})));
    for (size_t i = gathers.size(); i-- > 0;) {
      gathers[i].work->wait();
      EXPECT_TRUE(torch::equal(*gathers[i].whole, parts_of_all(num_ranks(), {static_cast<int64_t>(i), 7})));
    }
  });
}

TEST_P(SharedGather, TheMemoryLastsWhileARankHasIt) {
  run([&](int rank, const BackendPointer& backend) {
    at::Tensor kept;
    {
      const auto gather = sharing_of(backend).gather_shared(part_of_rank(rank));
      gather.work->wait();
      if (rank == 0) kept = *gather.whole;
    }
    all_reduce(backend, ReduceOp::kSum, {torch::ones({1})});  // All others have dropped it.
    if (rank == 0) {
      if (is_one_process()) EXPECT_EQ(kept.use_count(), 1U);
      EXPECT_TRUE(torch::equal(kept, parts_of_all(num_ranks())));
    }
  });
}

TEST_P(SharedGather, RefusesPartsOnOtherDevices) {
  run([&](int, const BackendPointer& backend) {
    EXPECT_EQ(message_of<InvalidArgument>(
                  [&] { sharing_of(backend).gather_shared(torch::empty({2}, torch::kMeta)); }),
              "[all_gather] expected a dense CPU tensor to share, but got one on meta");
  });
}

TEST_P(SharedGather, OfPartsOfOtherShapesIsAMismatch) {
  const int ranks = num_ranks();
  if (ranks == 1) GTEST_SKIP() << "one rank matches itself";
  const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
    const auto gather = sharing_of(backend).gather_shared(part_of_rank(rank, {rank == 0 ? 2 : 3}));
    gather.work->wait();
  });
  EXPECT_EQ(count_errors<std::exception>(errors, ""), static_cast<int>(errors.size()));
  EXPECT_GE(count_errors<CollectiveMismatch>(errors, "all_gather"), 1);
}

TEST_P(SharedGather, EndsWithAnErrorIfARankNeverJoins) {
  const int ranks = num_ranks();
  if (!is_one_process() || ranks == 1) GTEST_SKIP() << "ranks of one process leave each other";
  const auto errors = errors_of([&](int rank, const BackendPointer& backend) {
    if (rank == ranks - 1) return;
    const auto gather = sharing_of(backend).gather_shared(part_of_rank(rank));
    EXPECT_FALSE(gather.whole->defined());
    gather.work->wait();
  });
  EXPECT_EQ(count_errors<std::exception>(errors, ""), ranks - 1);
  EXPECT_GE(count_errors<CollectiveMismatch>(errors, "returned without"), 1);
}

}  // namespace
}  // namespace lockstep
