#include "lockstep/strategies/input/shuffled_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lockstep/strategies/input/sharded_stream.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/number_stream.h"

namespace lockstep {

struct UnselectableNumbers {
  Numbers numbers;
};

template <>
struct BatchTraits<UnselectableNumbers> {
  static int64_t size(const UnselectableNumbers& batch) { return static_cast<int64_t>(batch.numbers.size()); }
  static UnselectableNumbers none_of(const UnselectableNumbers&) { return {}; }
  static UnselectableNumbers slice(const UnselectableNumbers& batch, int64_t begin, int64_t end) {
    return {{batch.numbers.begin() + begin, batch.numbers.begin() + end}};
  }
  static UnselectableNumbers to(const UnselectableNumbers& batch, torch::Device) { return batch; }
};

namespace {

using ::testing::HasSubstr;

/// Draws 0 to count - 1 in pieces of up to `piece`.
std::function<std::optional<Example>()> drawn_numbers(int64_t count, int64_t piece) {
  return [stream = NumberStream(numbers_from(0, count)), piece]() mutable {
    return stream.get_batch(static_cast<size_t>(piece));
  };
}

std::vector<Numbers> shuffled_batches(int64_t count, int64_t piece, const EpochOrderOptions& options,
                                      int64_t batch_size) {
  detail::ShuffledStream<Example> stream(drawn_numbers(count, piece), options, batch_size);
  std::vector<Numbers> batches;
  while (const auto batch = stream()) {
    EXPECT_TRUE(batch->data.squeeze(1).equal(batch->target.to(torch::kDouble)));
    batches.push_back(numbers_of(batch->target.contiguous()));
  }
  EXPECT_FALSE(stream()) << "goes on after its end";
  return batches;
}

Numbers shuffled_numbers(int64_t count, int64_t piece, const EpochOrderOptions& options, int64_t batch_size) {
  Numbers all;
  const auto batches = shuffled_batches(count, piece, options, batch_size);
  for (size_t i = 0; i < batches.size(); ++i) {
    const bool is_last = i + 1 == batches.size();
    EXPECT_TRUE(is_last ? !batches[i].empty() : batches[i].size() == static_cast<size_t>(batch_size));
    all.insert(all.end(), batches[i].begin(), batches[i].end());
  }
  return all;
}

TEST(ShuffledStream, IsTheOrderOfAnEpochWithAWindow) {
  for (const int64_t count : {0, 1, 2, 12, 100, 500}) {
    for (const int64_t piece : {1, 7, 64}) {
      for (const int64_t batch_size : {1, 5, 300}) {
        const EpochOrderOptions options{.seed = 3, .epoch = 2, .window = 9};
        const auto shuffled = shuffled_numbers(count, piece, options, batch_size);
        if (count <= 9) {
          // EpochOrder takes a window over everything for none, and a stream cannot know.
          EXPECT_TRUE(std::is_permutation(shuffled.begin(), shuffled.end(), numbers_from(0, count).begin()));
          continue;
        }
        const auto order = EpochOrder(static_cast<size_t>(count), options)
                               .indices({.begin = 0, .end = static_cast<size_t>(count)});
        EXPECT_EQ(shuffled, Numbers(order.begin(), order.end())) << count << " in pieces of " << piece;
      }
    }
  }
}

TEST(ShuffledStream, GivesAllExamplesOfAStreamThatEndsWithinItsFirstBlock) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto numbers = shuffled_numbers(7, 3, {.seed = seed, .window = 1000}, 2);
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(numbers, numbers_from(0, 7));
  }
}

/// Epoch e gives 40 numbers, beginning with 100 e.
NumberStream forty(const InputContext& context) {
  return NumberStream(numbers_from(100 * context.epoch, 40));
}

TEST(ShuffledStream, IsTheSameForEveryNumberOfReplicas) {
  std::set<Numbers> orders;
  for (int replicas = 1; replicas <= 4; ++replicas) {
    OnReplicas strategy(replicas);
    auto batches = strategy->distribute_dataset(
        forty, {.global_batch_size = 6, .shuffle_seed = 5, .shuffle_window = 10});
    epoch_of(batches);
    orders.insert(flat(epoch_of(batches)));
  }
  ASSERT_EQ(orders.size(), 1U);
  const auto order = EpochOrder(40, {.seed = 5, .epoch = 1, .window = 10}).indices({.begin = 0, .end = 40});
  Numbers expected;
  for (const size_t i : order) expected.push_back(100 + static_cast<int64_t>(i));
  EXPECT_EQ(*orders.begin(), expected);
}

TEST(ShuffledStream, GoesOnWhereItsPositionWasRestored) {
  OnReplicas strategy(2);
  const auto made = [&] {
    return strategy->distribute_dataset(forty,
                                        {.global_batch_size = 6, .shuffle_seed = 5, .shuffle_window = 10});
  };
  auto whole = made();
  const auto steps = epoch_of(whole);
  for (int64_t stop = 1; stop < 7; ++stop) {
    auto first = made();
    epoch_of(first, stop);
    auto resumed = made();
    resumed.restore(first.position());
    const auto rest = epoch_of(resumed);
    EXPECT_EQ(rest, Epoch(steps.begin() + stop, steps.end())) << "after " << stop << " steps";
  }
}

TEST(ShuffledStream, NeedsAWindowAndBatchesThatCanBeSelected) {
  OnReplicas strategy(1);
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { strategy->distribute_dataset(forty, {.global_batch_size = 6, .shuffle_seed = 5}); }),
              HasSubstr("expected a shuffle window of 1 or more to shuffle a stream, but got 0"));
  struct Stream {
    std::optional<UnselectableNumbers> get_batch(size_t) { return std::nullopt; }
  };
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy->distribute_dataset(
                    [](const InputContext&) { return Stream(); },
                    {.global_batch_size = 6, .shuffle_seed = 5, .shuffle_window = 2});
              }),
              HasSubstr("expected batches whose BatchTraits have cat() and select(), to shuffle them"));
}

}  // namespace
}  // namespace lockstep
