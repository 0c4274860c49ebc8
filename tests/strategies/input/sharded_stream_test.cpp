// Streams that distribute_dataset cuts, in one process. sharded_stream_workers_test.cpp covers several
// workers.
#include "lockstep/strategies/input/sharded_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data.h>

#include <memory>
#include <stdexcept>

#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/number_stream.h"

namespace lockstep {
namespace {

namespace datasets = torch::data::datasets;
namespace samplers = torch::data::samplers;
using testing::ElementsAre;
using testing::HasSubstr;

/// Epoch e gives 13 numbers, beginning with 100 e.
NumberStream thirteen(const InputContext& context) {
  return NumberStream(numbers_from(100 * context.epoch, 13));
}

TEST(ShardedStream, IsCutAsADatasetIs) {
  for (const int replicas : {1, 2, 3, 4}) {
    OnReplicas strategy(replicas);
    for (const int prefetch : {0, 2}) {
      auto batches = strategy->distribute_dataset(thirteen, {.global_batch_size = 5, .prefetch = prefetch});
      auto indexed = strategy->distribute_dataset(numbered_dataset(13), {.global_batch_size = 5});
      EXPECT_EQ(epoch_of(batches), epoch_of(indexed));
      EXPECT_EQ(epoch_of(batches), cut_stream(numbers_from(100, 13), 5, static_cast<size_t>(replicas)));
    }
  }
}

TEST(ShardedStream, GivesOneWorkerTheSameByAllPolicies) {
  OnReplicas strategy(2);
  for (const auto policy :
       {AutoShardPolicy::kAuto, AutoShardPolicy::kOff, AutoShardPolicy::kData, AutoShardPolicy::kFile}) {
    auto batches = strategy->distribute_dataset(
        [](const InputContext& context) { return NumberStream(numbers_in_files(context.files)); },
        {.global_batch_size = 4, .auto_shard = policy, .files = {"0+3", "10+4", "20+2"}});
    EXPECT_EQ(epoch_of(batches), cut_stream(numbers_in_files({"0+3", "10+4", "20+2"}), 4, 2))
        << auto_shard_name(policy);
  }
}

TEST(ShardedStream, SaysHowManyExamplesABatchAndAShardHave) {
  OnReplicas strategy(3);
  auto batches = strategy->distribute_dataset(thirteen, {.global_batch_size = 11});
  std::vector<BatchSizes> sizes;
  for (const auto& batch : batches) sizes.push_back(*batch.batch_sizes());
  EXPECT_EQ(sizes, (std::vector<BatchSizes>{{11, {4, 4, 3}}, {2, {1, 1, 0}}}));
}

TEST(ShardedStream, TheFunctionLearnsWhatItIsToRead) {
  OnReplicas strategy(3);
  std::vector<InputContext> seen;
  auto batches = strategy->distribute_dataset(
      [&seen](const InputContext& context) {
        seen.push_back(context);
        return thirteen(context);
      },
      {.global_batch_size = 6, .files = {"a", "b"}, .prefetch = 0});
  epoch_of(batches);
  epoch_of(batches);
  ASSERT_EQ(seen.size(), 2U);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto& context = seen[static_cast<size_t>(epoch)];
    EXPECT_EQ(context.num_input_pipelines, 1);
    EXPECT_EQ(context.input_pipeline_id, 0);
    EXPECT_EQ(context.num_replicas_in_sync, 3);
    EXPECT_EQ(context.epoch, epoch);
    EXPECT_EQ(context.batch_size, 6);
    EXPECT_THAT(context.files, ElementsAre("a", "b"));
  }
}

TEST(ShardedStream, DropsAShortBatchWhereToldTo) {
  OnReplicas strategy(2);
  auto batches = strategy->distribute_dataset(thirteen, {.global_batch_size = 5, .drop_remainder = true});
  EXPECT_EQ(epoch_of(batches), cut_stream(numbers_from(0, 10), 5, 2));
  EXPECT_EQ(epoch_of(batches), cut_stream(numbers_from(100, 10), 5, 2));
}

TEST(ShardedStream, ARestoredPositionSkipsWhatWasSeen) {
  OnReplicas strategy(2);
  auto batches = strategy->distribute_dataset(thirteen, {.global_batch_size = 5});
  batches.restore({.epoch = 1, .step = 2});
  EXPECT_EQ(epoch_of(batches), cut_stream({110, 111, 112}, 5, 2));
  EXPECT_EQ(epoch_of(batches), cut_stream(numbers_from(200, 13), 5, 2));
  batches.restore({.epoch = 2, .step = 3});
  EXPECT_TRUE(epoch_of(batches).empty()) << "where that epoch has just ended";
  batches.restore({.epoch = 0, .step = 7});
  EXPECT_TRUE(epoch_of(batches).empty());
}

TEST(ShardedStream, AnErrorComesOutOfTheLoopAndTheNextOneBeginsAnew) {
  OnReplicas strategy(2);
  struct Breaking {
    bool* broken;
    NumberStream numbers;
    int next = 0;
    std::optional<Example> get_batch(size_t count) {
      auto batch = numbers.get_batch(count);
      if (next++ == 1 && *broken) throw std::domain_error("the stream broke");
      return batch;
    }
  };
  bool broken = true;
  auto batches = strategy->distribute_dataset(
      [&broken](const InputContext& context) {
        return Breaking{&broken, thirteen(context)};
      },
      {.global_batch_size = 5});
  int steps = 0;
  EXPECT_EQ(message_of<std::domain_error>([&] {
              for ([[maybe_unused]] const auto& batch : batches) ++steps;
            }),
            "the stream broke");
  EXPECT_EQ(steps, 1);
  broken = false;
  batches.restore({.epoch = 0, .step = 1});
  EXPECT_EQ(flat(epoch_of(batches)), numbers_from(5, 8));
}

TEST(ShardedStream, RefusesMoreExamplesThanItAskedFor) {
  OnReplicas strategy(2);
  struct Generous {
    Example get_batch(size_t count) { return numbered_examples(Numbers(count + 1, 0)); }
  };
  auto batches =
      strategy->distribute_dataset([](const InputContext&) { return Generous(); }, {.global_batch_size = 4});
  EXPECT_THAT(message_of<InvalidArgument>([&] { batches.begin(); }), HasSubstr("up to 4 examples"));
}

TEST(ShardedStream, RefusesOptionsThatMakeNoSense) {
  OnReplicas strategy(2);
  for (const int64_t size : {0, -3}) {
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { strategy->distribute_dataset(thirteen, {.global_batch_size = size}); }),
                HasSubstr("1 or more, but got " + std::to_string(size)));
  }
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { strategy->distribute_dataset(thirteen, {.global_batch_size = 4, .prefetch = -1}); }),
              HasSubstr("but got -1"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy->distribute_dataset(thirteen,
                                             {.global_batch_size = 4, .auto_shard = AutoShardPolicy::kFile});
              }),
              HasSubstr("but got 0"));
}

TEST(ShardedStream, HasNoLengthUntilItEnds) {
  OnReplicas strategy(2);
  auto batches = strategy->distribute_dataset(thirteen, {.global_batch_size = 5});
  EXPECT_THROW(batches.size(), InvalidArgument);
  EXPECT_THROW(batches.repeat(), InvalidArgument);
  auto taken = batches.take(1);
  EXPECT_EQ(epoch_of(taken), cut_stream(numbers_from(0, 5), 5, 2));
  auto halved = batches.map([](Example shard) {
    shard.target = shard.target.div(2, "floor");
    return shard;
  });
  EXPECT_EQ(epoch_of(halved).back(), (std::vector<Numbers>{{5, 5}, {6}}));
}

/// A stream of single examples that counts its resets.
class SingleExamples : public datasets::StatefulDataset<SingleExamples> {
 public:
  explicit SingleExamples(int64_t count, int* resets = nullptr) : count_(count), resets_(resets) {}

  void reset() override {
    EXPECT_EQ(next_, 0) << "begun before anything is drawn";
    if (resets_ != nullptr) ++*resets_;
    is_begun_ = true;
  }
  std::optional<std::vector<Example>> get_batch(size_t count) override {
    EXPECT_TRUE(is_begun_);
    std::vector<Example> examples;
    for (; examples.size() < count && next_ < count_; ++next_)
      examples.emplace_back(torch::full({1}, next_, torch::kDouble), torch::tensor(next_));
    if (examples.empty()) return std::nullopt;
    return examples;
  }
  std::optional<size_t> size() const override { return std::nullopt; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  int64_t count_;
  int* resets_;
  int64_t next_ = 0;
  bool is_begun_ = false;
};

TEST(ShardedStream, TakesLibTorchsStatefulDatasets) {
  OnReplicas strategy(2);
  int resets = 0;
  const DistributeStreamOptions options{.global_batch_size = 4};
  const auto expected = cut_stream(numbers_from(0, 7), 4, 2);
  auto by_value =
      strategy->distribute_dataset([&](const InputContext&) { return SingleExamples(7, &resets); }, options);
  EXPECT_EQ(epoch_of(by_value), expected);
  EXPECT_EQ(epoch_of(by_value), expected);
  EXPECT_EQ(resets, 2) << "once an epoch";
  auto by_pointer = strategy->distribute_dataset(
      [&](const InputContext&) { return std::make_unique<SingleExamples>(7, &resets); }, options);
  EXPECT_EQ(epoch_of(by_pointer), expected);
  EXPECT_EQ(resets, 3);
  auto mapped = strategy->distribute_dataset(
      [&](const InputContext&) { return SingleExamples(7, &resets).map(torch::data::transforms::Stack<>()); },
      options);
  EXPECT_EQ(epoch_of(mapped), expected);
  EXPECT_EQ(resets, 4);
}

/// LibTorch's stateless streams signal their end by an empty batch.
class Countdown : public datasets::StreamDataset<Countdown> {
 public:
  explicit Countdown(int64_t count) : left_(count) {}
  std::vector<Example> get_batch(size_t count) override {
    std::vector<Example> examples;
    for (; examples.size() < count && left_ > 0; --left_)
      examples.emplace_back(torch::full({1}, left_, torch::kDouble), torch::tensor(left_));
    return examples;
  }
  std::optional<size_t> size() const override { return std::nullopt; }

 private:
  int64_t left_;
};

TEST(ShardedStream, TakesLibTorchsStreamDatasets) {
  OnReplicas strategy(2);
  for (const int64_t count : {6, 8}) {
    auto expected = cut_stream(numbers_from(count, count, -1), 4, 2);
    auto batches = strategy->distribute_dataset([count](const InputContext&) { return Countdown(count); },
                                                {.global_batch_size = 4});
    EXPECT_EQ(epoch_of(batches), expected);
    using Negate = torch::data::transforms::Lambda<Example>;
    auto mapped = strategy->distribute_dataset(
        [count](const InputContext&) {
          return Countdown(count).map(
              Negate([](const Example& example) { return Example(example.data, -example.target); }));
        },
        {.global_batch_size = 4});
    EXPECT_EQ(epoch_of(mapped), cut_stream(numbers_from(-count, count), 4, 2));
  }
}

TEST(ShardedStream, ABatchOfNothingIsTheEnd) {
  OnReplicas strategy(2);
  struct Plain {
    Numbers numbers;
    Example get_batch(size_t count) {
      const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(std::min(count, numbers.size()));
      auto batch = numbered_examples({numbers.begin(), end});
      numbers.erase(numbers.begin(), end);
      return batch;
    }
  };
  auto batches = strategy->distribute_dataset([](const InputContext&) { return Plain{numbers_from(0, 8)}; },
                                              {.global_batch_size = 4});
  EXPECT_EQ(epoch_of(batches), cut_stream(numbers_from(0, 8), 4, 2));
}

TEST(ShardedStream, CutsBatchesThatTheStreamMadeSmaller) {
  // For example, batches that end with a file.
  OnReplicas strategy(2);
  struct FileByFile {
    std::vector<Numbers> files;
    size_t next = 0;
    std::optional<Example> get_batch(size_t) {
      if (next == files.size()) return std::nullopt;
      return numbered_examples(files[next++]);
    }
  };
  const auto make = [](const InputContext&) { return FileByFile{{{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9, 10}}}; };
  auto batches = strategy->distribute_dataset(make, {.global_batch_size = 4});
  EXPECT_EQ(epoch_of(batches), (Epoch{{{0, 1}, {2, 3}}, {{4, 5}, {6}}, {{7, 8}, {9, 10}}}));
  auto dropping = strategy->distribute_dataset(make, {.global_batch_size = 4, .drop_remainder = true});
  EXPECT_EQ(epoch_of(dropping), (Epoch{{{0, 1}, {2, 3}}}));
  dropping.restore({.epoch = 0, .step = 1});
  EXPECT_TRUE(epoch_of(dropping).empty()) << "what comes after a short batch belongs to no step";
}

/// One chunk per file.
class FileReader : public datasets::ChunkDataReader<Example> {
 public:
  using BatchType = std::vector<Example>;
  explicit FileReader(std::vector<std::string> files) : files_(std::move(files)) {}
  BatchType read_chunk(size_t index) override {
    BatchType examples;
    for (const int64_t number : numbers_in_file(files_[index]))
      examples.emplace_back(torch::full({1}, number, torch::kDouble), torch::tensor(number));
    return examples;
  }
  size_t chunk_count() override { return files_.size(); }
  void reset() override {}

 private:
  std::vector<std::string> files_;
};

TEST(ShardedStream, TakesLibTorchsChunkDatasets) {
  using Chunks = datasets::ChunkDataset<FileReader, samplers::SequentialSampler, samplers::SequentialSampler>;
  OnReplicas strategy(2);
  const std::vector<std::string> files{"0+3", "10+4", "20+2"};
  auto batches = strategy->distribute_dataset(
      [](const InputContext& context) {
        const datasets::ChunkDatasetOptions options(1, static_cast<size_t>(context.batch_size));
        return std::make_shared<Chunks>(FileReader(context.files), samplers::SequentialSampler(0),
                                        samplers::SequentialSampler(0), options);
      },
      {.global_batch_size = 4, .files = files});
  for (int epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(epoch_of(batches), cut_stream(numbers_in_files(files), 4, 2));
  auto stacked = strategy->distribute_dataset(
      [](const InputContext& context) {
        const datasets::ChunkDatasetOptions options(1, static_cast<size_t>(context.batch_size));
        return datasets::make_shared_dataset<Chunks>(FileReader(context.files),
                                                     samplers::SequentialSampler(0),
                                                     samplers::SequentialSampler(0), options)
            .map(torch::data::transforms::Stack<>());
      },
      {.global_batch_size = 4, .files = files});
  EXPECT_EQ(epoch_of(stacked), cut_stream(numbers_in_files(files), 4, 2));
  EXPECT_EQ(epoch_of(batches, 1).size(), 1U) << "left early, its threads end";
}

}  // namespace
}  // namespace lockstep
