// reduce() and gather() of tuples, vectors, maps, batches and structs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct StepResult {
  torch::Tensor loss;
  torch::Tensor hits;
  torch::Tensor skipped;  // undefined
  std::string note;       // is not reduced

  template <typename Visit>
  void for_each_tensor(const Visit& visit) {
    visit(loss), visit(hits), visit(skipped);
  }
};

static_assert(TensorStructure<std::tuple<torch::Tensor, double, std::vector<torch::Tensor>>>);
static_assert(TensorStructure<std::map<std::string, std::pair<torch::Tensor, int>>>);
static_assert(TensorStructure<std::array<double, 3>> && TensorStructure<std::optional<torch::Tensor>>);
static_assert(TensorStructure<Example> && TensorStructure<StepResult>);
static_assert(!TensorStructure<std::string> && !TensorStructure<std::tuple<torch::Tensor, std::string>> &&
              !TensorStructure<std::vector<bool>> && !TensorStructure<torch::Tensor>);

class ReduceStructures : public ::testing::Test {
 protected:
  template <typename T>
  PerReplica<T> pair(const T& a, const T& b) {
    return two_.distribute_values_from_function(
        [&](const ValueContext& context) { return context.replica_id_in_sync_group == 0 ? a : b; });
  }

  MirroredStrategy two_{cpu_devices(2), {.intra_op_threads = 1}};
};

TEST_F(ReduceStructures, EachPartIsReducedAsItWouldBeAlone) {
  const auto results = two_.run([](ReplicaContext& replica) {
    const int id = replica.replica_id();
    return std::tuple(torch::tensor({1.0, 2.0}) * (id + 1), torch::tensor(10 + id), 0.5 + id,
                      int64_t{id + 3});
  });
  const auto [losses, hits, number, count] = two_.reduce(ReduceOp::kSum, results);
  EXPECT_TRUE(losses.equal(torch::tensor({3.0, 6.0})));
  EXPECT_EQ(hits.item<int64_t>(), 21);
  EXPECT_EQ(number, 2.0);
  EXPECT_EQ(count, 7);
  const auto floats = pair(std::pair(torch::tensor({1.0}), 2.0), std::pair(torch::tensor({4.0}), 5.0));
  const auto mean = two_.reduce(ReduceOp::kMean, floats);
  EXPECT_EQ(mean.first.item<double>(), 2.5);
  EXPECT_EQ(mean.second, 3.5);
}

TEST_F(ReduceStructures, NamedLogsStructsAndBatchesKeepTheirType) {
  using Logs = std::map<std::string, torch::Tensor>;
  const auto logs =
      two_.reduce(ReduceOp::kMean, pair(Logs{{"a", torch::tensor(1.0)}, {"b", torch::tensor(4.0)}},
                                        Logs{{"a", torch::tensor(3.0)}, {"b", torch::tensor(5.0)}}));
  EXPECT_EQ(logs.at("a").item<double>(), 2.0);
  EXPECT_EQ(logs.at("b").item<double>(), 4.5);

  const StepResult first{torch::tensor(1.5), torch::tensor({2, 3}), {}, "first"};
  const StepResult second{torch::tensor(2.5), torch::tensor({4, 5}), {}, "second"};
  const StepResult sum = two_.reduce(ReduceOp::kSum, pair(first, second));
  EXPECT_EQ(sum.loss.item<double>(), 4.0);
  EXPECT_TRUE(sum.hits.equal(torch::tensor({6, 8})));
  EXPECT_FALSE(sum.skipped.defined());
  EXPECT_EQ(sum.note, "first");
  EXPECT_EQ(first.loss.item<double>(), 1.5) << "the replica's own value is untouched";

  const Example batch = two_.reduce(ReduceOp::kSum, pair(Example(torch::ones({2}), torch::tensor({1, 2})),
                                                         Example(torch::ones({2}), torch::tensor({3, 4}))));
  EXPECT_TRUE(batch.data.equal(torch::full({2}, 2.0F)));
  EXPECT_TRUE(batch.target.equal(torch::tensor({4, 6})));
}

TEST_F(ReduceStructures, AnAxisCountsForEveryPart) {
  const auto parts = pair(std::vector{torch::tensor({1.0, 2.0}), torch::tensor({1.0})},
                          std::vector{torch::tensor({6.0}), torch::tensor({2.0, 3.0, 6.0})});
  const auto means = two_.reduce(ReduceOp::kMean, parts, 0);
  EXPECT_EQ(means[0].item<double>(), 3.0);
  EXPECT_EQ(means[1].item<double>(), 3.0);
}

TEST_F(ReduceStructures, GatherConcatenatesEachPart) {
  const auto gathered = two_.gather(pair(std::pair(torch::tensor({1, 2}), torch::ones({2, 3})),
                                         std::pair(torch::tensor({3}), torch::zeros({1, 3}))));
  EXPECT_TRUE(gathered.first.equal(torch::tensor({1, 2, 3})));
  EXPECT_TRUE(gathered.second.equal(torch::cat({torch::ones({2, 3}), torch::zeros({1, 3})})));
  EXPECT_THROW(two_.gather(pair(std::pair(torch::ones({1}), 1.0), std::pair(torch::ones({1}), 2.0))),
               InvalidArgument)
      << "a number has no axis";
}

TEST_F(ReduceStructures, PartsThatDifferAreRefusedByReplica) {
  const auto tensors = [](size_t count) { return std::vector<torch::Tensor>(count, torch::ones({2})); };
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { two_.reduce(ReduceOp::kSum, pair(tensors(2), tensors(3))); }),
      HasSubstr("[reduce] expected a value of 2 tensors and numbers, as replica 0 has, but replica 1 has "
                "a value of 3 tensors and numbers"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { two_.gather(pair(tensors(1), tensors(0))); }),
              HasSubstr("[gather] expected a value of 1 tensors"));
  using Maybe = std::pair<torch::Tensor, torch::Tensor>;
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                two_.reduce(ReduceOp::kSum,
                            pair(Maybe(torch::ones({}), torch::ones({})), Maybe(torch::ones({}), {})));
              }),
              HasSubstr("replica 1 has an undefined tensor at position 1"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                two_.reduce(ReduceOp::kMean, pair(std::pair(int64_t{1}, 0.5), std::pair(int64_t{2}, 0.5)));
              }),
              HasSubstr("expected the sum of an integer"));
}

TEST(ReduceStructuresOfWorkers, AreReducedAndGatheredOverAllReplicas) {
  expect_no_worker_failed(run_strategies({2, 1}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto values = strategy.run([](ReplicaContext& replica) {
      const int id = replica.replica_id();
      return std::tuple(torch::full({2}, static_cast<double>(id)), int64_t{id}, torch::full({id + 1}, id));
    });
    const auto sums = strategy.reduce(ReduceOp::kSum, values.map([](const auto& value) {
      return std::pair(std::get<0>(value), std::get<1>(value));
    }));
    EXPECT_TRUE(sums.first.equal(torch::full({2}, 3.0, torch::kDouble)) ||
                sums.first.equal(torch::full({2}, 3.0)));
    EXPECT_EQ(sums.second, 3);
    const auto all =
        strategy.gather(values.map([](const auto& value) { return std::vector{std::get<2>(value)}; }));
    EXPECT_TRUE(all[0].equal(torch::tensor({0, 1, 1, 2, 2, 2})));
  }));
}

TEST(ReduceStructuresOfWorkers, PartsThatDifferBetweenWorkersAreRefusedOnAll) {
  for (const bool is_gathered : {false, true}) {
    const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto values = strategy.run([](ReplicaContext& replica) {
        return std::vector<torch::Tensor>(static_cast<size_t>(replica.replica_id()) + 1, torch::ones({2}));
      });
      if (is_gathered) {
        strategy.gather(values);
      } else {
        strategy.reduce(ReduceOp::kSum, values);
      }
    });
    for (const auto& error : errors) EXPECT_THAT(text_of(error), HasSubstr("value given to"));
  }
}

}  // namespace
}  // namespace lockstep
