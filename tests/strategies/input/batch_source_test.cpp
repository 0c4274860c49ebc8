#include "lockstep/strategies/input/batch_source.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {
namespace {

/// Batches that name their epoch and step, with two examples on each of two replicas.
class NamedBatches : public BatchSource<std::string> {
 public:
  explicit NamedBatches(int64_t steps) : steps_(steps) {}
  const InputPlacement& placement() const override { return placement_; }
  std::optional<int64_t> num_steps() const override { return steps_; }
  std::optional<PerReplica<std::string>> load(int64_t epoch, int64_t step) override {
    if (step >= steps_) return std::nullopt;
    const std::string name = std::to_string(epoch) + "." + std::to_string(step);
    PerReplica<std::string> batch({name + "a", name + "b"}, placement_.devices);
    batch.set_batch_sizes({4, {2, 2}});
    return batch;
  }

 private:
  int64_t steps_;
  InputPlacement placement_{std::make_shared<const std::vector<LogicalDevice>>(logical_cpus(2)), 2, 0};
};

/// Replica 0's batches of an epoch.
std::vector<std::string> names_of(BatchSource<std::string>& source, int64_t epoch, int64_t limit = 100) {
  std::vector<std::string> names;
  for (int64_t step = 0; step < limit; ++step) {
    auto batch = source.load(epoch, step);
    if (!batch) break;
    names.push_back(batch->local_values()[0]);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(MappedSource, ChangesEveryShardAndKeepsTheSizes) {
  MappedSource<std::string, size_t> lengths(std::make_shared<NamedBatches>(3),
                                            [](const std::string& name) { return name.size(); });
  EXPECT_EQ(lengths.num_steps(), 3);
  const auto batch = lengths.load(10, 2);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->local_values(), (std::vector<size_t>{5, 5}));
  EXPECT_EQ(batch->batch_sizes()->global, 4);
  EXPECT_EQ(batch->batch_sizes()->local, (std::vector<int64_t>{2, 2}));
  EXPECT_FALSE(lengths.load(10, 3).has_value());
}

TEST(TakenSource, EndsEveryEpochEarly) {
  TakenSource<std::string> two(std::make_shared<NamedBatches>(3), 2);
  EXPECT_EQ(two.num_steps(), 2);
  EXPECT_EQ(names_of(two, 0), (Names{"0.0a", "0.1a"}));
  EXPECT_EQ(names_of(two, 1), (Names{"1.0a", "1.1a"}));
  TakenSource<std::string> many(std::make_shared<NamedBatches>(3), 7);
  EXPECT_EQ(many.num_steps(), 3);
  EXPECT_EQ(names_of(many, 0).size(), 3U);
  EXPECT_EQ(TakenSource<std::string>(std::make_shared<NamedBatches>(3), 0).num_steps(), 0);
}

TEST(RepeatedSource, RunsThroughEpochsThatNoOtherEpochRepeats) {
  RepeatedSource<std::string> twice(std::make_shared<NamedBatches>(2), 2);
  EXPECT_EQ(twice.num_steps(), 4);
  EXPECT_EQ(names_of(twice, 0), (Names{"0.0a", "0.1a", "1.0a", "1.1a"}));
  EXPECT_EQ(names_of(twice, 1), (Names{"2.0a", "2.1a", "3.0a", "3.1a"}));
}

TEST(RepeatedSource, WithoutACountHasNoEnd) {
  RepeatedSource<std::string> endless(std::make_shared<NamedBatches>(2), kEndless);
  EXPECT_EQ(endless.num_steps(), kEndless);
  EXPECT_EQ(names_of(endless, 0, 6), (Names{"0.0a", "0.1a", "1.0a", "1.1a", "2.0a", "2.1a"}));
  EXPECT_EQ(names_of(endless, 1, 1)[0], "4294967296.0a")
      << "a stream left early continues with epochs of its own";
}

TEST(RepeatedSource, MoreStepsThanCanBeCountedHaveNoEnd) {
  RepeatedSource<std::string> many(std::make_shared<NamedBatches>(2), kEndless - 1);
  EXPECT_EQ(many.num_steps(), kEndless);
  EXPECT_EQ(names_of(many, 1, 1)[0], "4294967296.0a");
}

TEST(RepeatedSource, OfNothingIsNothing) {
  for (const int64_t count : {int64_t{3}, kEndless}) {
    RepeatedSource<std::string> source(std::make_shared<NamedBatches>(0), count);
    EXPECT_EQ(source.num_steps(), 0);
    EXPECT_FALSE(source.load(0, 0).has_value());
  }
  RepeatedSource<std::string> never(std::make_shared<NamedBatches>(2), 0);
  EXPECT_EQ(never.num_steps(), 0);
  EXPECT_FALSE(never.load(0, 0).has_value());
}

}  // namespace
}  // namespace lockstep
