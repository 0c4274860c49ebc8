// Datasets made by a function, and LibTorch's own datasets.
#include <gtest/gtest.h>
#include <torch/data.h>

#include <thread>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {
namespace {

/// A pipeline of `count` batches. Batch b of epoch e holds the number 100 e + b, b + 1 times. It fails the
/// test if asked for more after its end.
auto numbered_pipeline(int count, int64_t epoch) {
  return [count, epoch, next = 0]() mutable -> std::optional<Example> {
    EXPECT_LE(next, count) << "asked again after the end";
    if (next++ == count) return std::nullopt;
    const auto numbers = torch::full({next}, 100 * epoch + next - 1, torch::kLong);
    return Example(numbers.to(torch::kDouble), numbers);
  };
}

auto numbered_stream(const Strategy& strategy, int count, int prefetch) {
  return strategy.distribute_datasets_from_function(
      [count](const InputContext& input) { return numbered_pipeline(count, input.epoch); },
      {.prefetch = prefetch});
}

using StreamEpoch = std::vector<std::vector<Numbers>>;

TEST(DistributedStream, GivesEachReplicaOneBatchOfThePipelineAStep) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  for (const int prefetch : {0, 2}) {
    auto batches = numbered_stream(strategy, 4, prefetch);
    EXPECT_EQ(epoch_of(batches), (StreamEpoch{{{0}, {1, 1}}, {{2, 2, 2}, {3, 3, 3, 3}}}));
    EXPECT_EQ(epoch_of(batches), (StreamEpoch{{{100}, {101, 101}}, {{102, 102, 102}, {103, 103, 103, 103}}}));
  }
}

TEST(DistributedStream, ReplicasThatGetNoBatchInTheLastStepHaveAnEmptyShard) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  for (const int prefetch : {0, 2}) {
    auto batches = numbered_stream(strategy, 4, prefetch);
    EXPECT_EQ(epoch_of(batches), (StreamEpoch{{{0}, {1, 1}, {2, 2, 2}}, {{3, 3, 3, 3}, {}, {}}}));
  }
  auto batches = numbered_stream(strategy, 4, 1);
  std::vector<Numbers> sizes;
  for (const auto& batch : batches) {
    sizes.push_back(batch.batch_sizes()->local);
    sizes.back().push_back(batch.batch_sizes()->global);
  }
  EXPECT_EQ(sizes, (std::vector<Numbers>{{1, 2, 3, 6}, {4, 0, 0, 4}}));
}

TEST(DistributedStream, AScalarElementIsRefusedWithItsStepAndEpoch) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  // Two batches a step: the first epoch's fourth batch is a scalar.
  auto batches = strategy.distribute_datasets_from_function(
      [](const InputContext&) {
        return [next = 0]() mutable -> std::optional<torch::Tensor> {
          return ++next == 4 ? torch::ones({}) : torch::ones({2});
        };
      },
      {.prefetch = 0});
  EXPECT_EQ(
      message_of<InvalidArgument>([&] {
        for ([[maybe_unused]] const auto& batch : batches) continue;
      }),
      "[distribute_datasets_from_function] step 1 of epoch 0 of the pipeline: expected tensors with examples "
      "along axis 0, but got a tensor without dimensions: return a batch of shape [n, ...], such as "
      "value.unsqueeze(0) for one example");
}

TEST(DistributedStream, TheFunctionLearnsItsPlaceAndTheEpoch) {
  MirroredStrategy strategy(cpu_devices(4), {.intra_op_threads = 1});
  std::vector<InputContext> seen;
  auto batches = strategy.distribute_datasets_from_function(
      [&seen](const InputContext& input) {
        seen.push_back(input);
        return numbered_pipeline(4, input.epoch);
      },
      {.prefetch = 0});
  epoch_of(batches);
  epoch_of(batches);
  ASSERT_EQ(seen.size(), 2U);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto& input = seen[static_cast<size_t>(epoch)];
    EXPECT_EQ(input.num_input_pipelines, 1);
    EXPECT_EQ(input.input_pipeline_id, 0);
    EXPECT_EQ(input.num_replicas_in_sync, 4);
    EXPECT_EQ(input.epoch, epoch);
  }
}

TEST(DistributedStream, HasNoLengthUntilItEnds) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = numbered_stream(strategy, 4, 1);
  EXPECT_THROW(batches.size(), InvalidArgument);
  EXPECT_THROW(batches.repeat(), InvalidArgument);
  auto taken = batches.take(1);
  EXPECT_EQ(epoch_of(taken), (StreamEpoch{{{0}, {1, 1}}}));
  EXPECT_THROW(numbered_stream(strategy, 4, -1), InvalidArgument);
}

TEST(DistributedStream, ARestoredPositionSkipsWhatWasSeen) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = numbered_stream(strategy, 6, 2);
  batches.restore({.epoch = 1, .step = 2});
  EXPECT_EQ(flat(epoch_of(batches)), (Numbers{104, 104, 104, 104, 104, 105, 105, 105, 105, 105, 105}));
  EXPECT_EQ(epoch_of(batches).size(), 3U);
  batches.restore({.epoch = 0, .step = 9});
  EXPECT_TRUE(epoch_of(batches).empty());
}

TEST(DistributedStream, LeftEarlyBeginsTheNextEpochAnew) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = numbered_stream(strategy, 4, 2);
  EXPECT_EQ(epoch_of(batches, 1), (StreamEpoch{{{0}, {1, 1}}}));
  EXPECT_EQ(epoch_of(batches).front(), (std::vector<Numbers>{{100}, {101, 101}}));
}

TEST(DistributedStream, TwoLoopsAtOnceEachKeepTheirPlace) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = numbered_stream(strategy, 8, 2);
  auto taken = batches.take(3);  // uses the same pipeline
  Numbers seen, seen_by_taken;
  auto a = batches.begin();
  auto b = taken.begin();
  for (; b != taken.end(); ++a, ++b) {
    seen.push_back(shards_of(*a)[0][0]);
    seen_by_taken.push_back(shards_of(*b)[0][0]);
  }
  EXPECT_EQ(seen, (Numbers{0, 2, 4}));
  EXPECT_EQ(seen_by_taken, (Numbers{0, 2, 4}));
}

TEST(DistributedStream, AnErrorInThePipelineReachesTheLoop) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = strategy.distribute_datasets_from_function([](const InputContext&) {
    return [next = 0]() mutable -> std::optional<Example> {
      if (++next == 4) throw std::domain_error("the stream broke");
      return Example(torch::ones({1}), torch::ones({1}, torch::kLong));
    };
  });
  int steps = 0;
  EXPECT_EQ(message_of<std::domain_error>([&] {
              for ([[maybe_unused]] const auto& batch : batches) ++steps;
            }),
            "the stream broke");
  EXPECT_EQ(steps, 1);
}

TEST(DistributedStream, ARestoredPositionSurvivesAnErrorOnTheWayThere) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  bool broken = true;
  auto batches = strategy.distribute_datasets_from_function([&broken](const InputContext&) {
    return [&broken, next = 0]() mutable -> std::optional<Example> {
      if (next == 3 && broken) throw std::domain_error("the stream broke");
      if (next == 8) return std::nullopt;
      const auto number = torch::full({1}, next++, torch::kLong);
      return Example(number.to(torch::kDouble), number);
    };
  });
  batches.restore({.epoch = 0, .step = 2});
  EXPECT_THROW(batches.begin(), std::domain_error);
  broken = false;
  EXPECT_EQ(epoch_of(batches), (StreamEpoch{{{4}, {5}}, {{6}, {7}}}));
}

TEST(DistributedStream, TakesALoaderOfLibTorchs) {
  struct Squares : public torch::data::Dataset<Squares, Example> {
    Example get(size_t index) override {
      const auto number = static_cast<int64_t>(index * index);
      return {torch::full({2}, static_cast<double>(number)), torch::tensor(number)};
    }
    std::optional<size_t> size() const override { return 5; }
  };
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto batches = strategy.distribute_datasets_from_function([](const InputContext& input) {
    return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        Squares(), torch::data::DataLoaderOptions(static_cast<size_t>(input.get_per_replica_batch_size(4))));
  });
  EXPECT_EQ(epoch_of(batches), (StreamEpoch{{{0, 1}, {4, 9}}, {{16}, {}}}));
  EXPECT_EQ(epoch_of(batches).size(), 2U);

  auto indexed = strategy.distribute_dataset(Squares(), {.global_batch_size = 4});
  EXPECT_EQ(epoch_of(indexed), (StreamEpoch{{{0, 1}, {4, 9}}, {{16}, {}}}));
  auto mapped = strategy.distribute_dataset(Squares().map(torch::data::transforms::Stack<>()),
                                            {.global_batch_size = 3});
  EXPECT_EQ(epoch_of(mapped), (StreamEpoch{{{0, 1}, {4}}, {{9}, {16}}}));
}

}  // namespace
}  // namespace lockstep
