#include "lockstep/runtime/backends/local_backend.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <latch>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

std::string name_of(LocalAlgorithm algorithm) {
  return algorithm == LocalAlgorithm::kOneDevice ? "one_device" : "split";
}

at::Tensor random_tensor(std::mt19937& random, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(random());
  if (dtype == at::kBool) return torch::randint(0, 2, shape, generator).to(at::kBool);
  if (at::isIntegralType(dtype, false)) return torch::randint(-9, 10, shape, generator).to(dtype);
  return torch::randn(shape, generator, at::kDouble).to(dtype);
}

/// Reduces one value per rank in rank order, with plain ATen calls.
at::Tensor reduced_in_order(const std::vector<at::Tensor>& values, c10d::ReduceOp::RedOpType op) {
  at::Tensor result = values[0].clone();
  for (size_t i = 1; i < values.size(); ++i) {
    if (op == c10d::ReduceOp::PRODUCT) {
      result = result * values[i];
    } else if (op == c10d::ReduceOp::MIN) {
      result = at::minimum(result, values[i]);
    } else if (op == c10d::ReduceOp::MAX) {
      result = at::maximum(result, values[i]);
    } else {
      result = result + values[i];
    }
  }
  return op == c10d::ReduceOp::AVG ? result / static_cast<int64_t>(values.size()) : result;
}

class LocalBackendOf : public testing::TestWithParam<std::tuple<int, LocalAlgorithm>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  LocalAlgorithm algorithm() const { return std::get<1>(GetParam()); }

  /// Reduces one tensor list per rank in place.
  void all_reduce_all(ReplicaGroup& group, std::vector<std::vector<at::Tensor>>& lists,
                      c10d::ReduceOp::RedOpType op) {
    group.run([&](int rank) {
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      group.backend(rank)->allreduce(lists[static_cast<size_t>(rank)], options)->wait();
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, LocalBackendOf,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(LocalAlgorithm::kSplitOverReplicas,
                                                          LocalAlgorithm::kOneDevice)),
                         [](const auto& info) {
                           return name_of(std::get<1>(info.param)) + "_" +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST_P(LocalBackendOf, ReducesInRankOrderToTheSameBitsOnEveryRank) {
  ReplicaGroup group(ranks(), algorithm());
  std::mt19937 random(11);
  using c10d::ReduceOp;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kInt, at::kLong, at::kHalf, at::kBool}) {
    for (const auto op : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX}) {
      if (op == ReduceOp::AVG && !at::isFloatingType(dtype)) continue;
      SCOPED_TRACE(std::string(c10::toString(dtype)) + " operation " + std::to_string(op));
      const std::vector<std::vector<int64_t>> shapes{
          {static_cast<int64_t>(random() % 70000)}, {0, 3}, {}, {3, static_cast<int64_t>(random() % 50)}};
      std::vector<std::vector<at::Tensor>> lists(static_cast<size_t>(ranks()));
      for (auto& list : lists) {
        for (const auto& shape : shapes) list.push_back(random_tensor(random, shape, dtype));
      }
      std::vector<at::Tensor> expected;
      for (size_t i = 0; i < shapes.size(); ++i) {
        std::vector<at::Tensor> values;
        for (const auto& list : lists) values.push_back(list[i]);
        expected.push_back(reduced_in_order(values, op));
      }
      all_reduce_all(group, lists, op);
      for (const auto& list : lists) {
        for (size_t i = 0; i < shapes.size(); ++i) {
          EXPECT_EQ(list[i].scalar_type(), dtype);
          EXPECT_TRUE(torch::equal(list[i], expected[i]));
        }
      }
    }
  }
}

TEST_P(LocalBackendOf, ReducesTensorsThatAreNotContiguous) {
  ReplicaGroup group(ranks(), algorithm());
  std::mt19937 random(13);
  // Dense but transposed, rows of a wider matrix, channels_last, and strides that differ between the ranks.
  std::vector<std::vector<at::Tensor>> lists(static_cast<size_t>(ranks()));
  std::vector<at::Tensor> backgrounds;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    auto& list = lists[rank];
    list.push_back(random_tensor(random, {300, 200}, at::kFloat).t());
    backgrounds.push_back(random_tensor(random, {40, 10}, at::kFloat));
    list.push_back(backgrounds.back().narrow(1, 3, 4));
    list.push_back(
        random_tensor(random, {2, 3, 20, 30}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast));
    list.push_back(random_tensor(random, {50, 60}, at::kFloat));
    if (rank % 2 == 1) list.back() = list.back().t().contiguous().t();
  }
  std::vector<at::Tensor> outside;
  for (const auto& background : backgrounds) outside.push_back(background.narrow(1, 7, 3).clone());
  std::vector<at::Tensor> expected;
  for (size_t i = 0; i < lists[0].size(); ++i) {
    std::vector<at::Tensor> values;
    for (const auto& list : lists) values.push_back(list[i]);
    expected.push_back(reduced_in_order(values, c10d::ReduceOp::SUM));
  }
  all_reduce_all(group, lists, c10d::ReduceOp::SUM);
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(lists[rank][i], expected[i]));
    EXPECT_TRUE(torch::equal(backgrounds[rank].narrow(1, 7, 3), outside[rank]));
  }
}

TEST_P(LocalBackendOf, GivesTheSameBitsInEveryRun) {
  std::vector<std::vector<at::Tensor>> runs;
  for (int run = 0; run < 3; ++run) {
    ReplicaGroup group(ranks(), algorithm());
    std::mt19937 random(17);
    std::vector<std::vector<at::Tensor>> lists(static_cast<size_t>(ranks()));
    for (int i = 0; i < 6; ++i) {
      const auto size = static_cast<int64_t>(random() % 100000);
      for (auto& list : lists) list.push_back(random_tensor(random, {size}, at::kFloat));
    }
    all_reduce_all(group, lists, c10d::ReduceOp::AVG);
    runs.push_back(lists[0]);
  }
  for (size_t i = 0; i < runs[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(runs[1][i], runs[0][i]));
    EXPECT_TRUE(torch::equal(runs[2][i], runs[0][i]));
  }
}

TEST_P(LocalBackendOf, ServesReductionsThatWereLaunchedTogether) {
  ReplicaGroup group(ranks(), algorithm());
  constexpr int kLaunched = 12;
  group.run([&](int rank) {
    std::vector<std::vector<at::Tensor>> lists;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < kLaunched; ++i) {
      lists.push_back({torch::full({50000}, i * 10.0 + rank, at::kDouble)});
      works.push_back(group.backend(rank)->allreduce(lists.back()));
    }
    for (int i = 0; i < kLaunched; ++i) {
      works[static_cast<size_t>(i)]->wait();
      EXPECT_TRUE(works[static_cast<size_t>(i)]->isCompleted());
      const double expected = ranks() * i * 10.0 + ranks() * (ranks() - 1) / 2.0;
      EXPECT_TRUE(lists[static_cast<size_t>(i)][0].eq(expected).all().item<bool>());
    }
  });
}

TEST_P(LocalBackendOf, LeavesEachRankTheOnlyHandleOfItsTensorHoweverLongTheOthersTake) {
  ReplicaGroup group(ranks(), algorithm());
  std::latch has_looked(1);
  group.run([&](int rank) {
    std::vector<at::Tensor> tensors{torch::ones({1000})};
    std::vector<at::Tensor> parts{torch::ones({10})};
    std::vector<std::vector<at::Tensor>> all(1, std::vector<at::Tensor>(static_cast<size_t>(ranks())));
    for (auto& part : all[0]) part = torch::empty({10});
    auto sum = group.backend(rank)->allreduce(tensors);
    auto gathered = group.backend(rank)->allgather(all, parts);
    if (rank > 0) {
      has_looked.wait();
      return;
    }
    sum->wait();
    gathered->wait();
    sum.reset();
    gathered.reset();
    EXPECT_EQ(tensors[0].use_count(), 1);
    EXPECT_EQ(parts[0].use_count(), 1);
    for (const auto& part : all[0]) EXPECT_EQ(part.use_count(), 1);
    has_looked.count_down();
  });
}

TEST_P(LocalBackendOf, BroadcastsAnyRanksTensors) {
  ReplicaGroup group(ranks(), algorithm());
  for (int root = 0; root < ranks(); ++root) {
    std::vector<std::vector<at::Tensor>> lists;
    for (int rank = 0; rank < ranks(); ++rank) {
      lists.push_back({torch::full({3, 2}, rank + 0.5), torch::full({4}, rank, at::kLong), torch::empty({0}),
                       torch::full({2}, rank % 2 == 1, at::kBool)});
    }
    group.run([&](int rank) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      group.backend(rank)->broadcast(lists[static_cast<size_t>(rank)], options)->wait();
    });
    for (const auto& list : lists) {
      EXPECT_TRUE(list[0].eq(root + 0.5).all().item<bool>());
      EXPECT_TRUE(list[1].eq(root).all().item<bool>());
      EXPECT_TRUE(list[3].eq(root % 2 == 1).all().item<bool>());
    }
  }
}

TEST_P(LocalBackendOf, GathersTensorsOfDifferentSizes) {
  ReplicaGroup group(ranks(), algorithm());
  group.run([&](int rank) {
    // Rank r brings r rows, so rank 0 brings none.
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int other = 0; other < ranks(); ++other) outputs[0].push_back(torch::full({other, 2}, -1.0));
    std::vector<at::Tensor> inputs{torch::full({rank, 2}, rank * 1.0)};
    group.backend(rank)->allgather(outputs, inputs)->wait();
    for (int other = 0; other < ranks(); ++other) {
      EXPECT_TRUE(torch::equal(outputs[0][static_cast<size_t>(other)], torch::full({other, 2}, other * 1.0)));
    }
    group.backend(rank)->barrier()->wait();
  });
}

}  // namespace
}  // namespace lockstep
