#include "lockstep/strategies/pipeline/pipeline_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

double seconds_of(const PipelineSchedule& schedule) {
  return simulate_pipeline(schedule, uniform_pipeline_times(schedule, 1, 2)).seconds();
}

TEST(PipelineStreamTest, FillsThePipelineOnceForAllBatches) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<int> rank_of_stage(static_cast<size_t>(ranks));
    std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);
    for (const auto& micro_batches :
         std::vector<std::vector<int>>{{4}, {1, 1, 1, 1, 1}, {4, 4, 4}, {8, 8, 3}, {2, 5, 1, 1, 6}}) {
      const int all = std::accumulate(micro_batches.begin(), micro_batches.end(), 0);
      const auto stream = plan_pipeline_stream(rank_of_stage, micro_batches);
      EXPECT_EQ(seconds_of(stream.schedule), all + ranks - 1);
      double drained = 0;
      for (const int count : micro_batches) drained += seconds_of(forward_schedule(rank_of_stage, count));
      EXPECT_EQ(drained, all + static_cast<int>(micro_batches.size()) * (ranks - 1));
    }
  }
}

TEST(PipelineStreamTest, RanksOfSeveralStagesDoNotWaitForOneMicroBatchToPassThemAll) {
  // Of stages in turns, ranks wait only while the pipeline fills.
  EXPECT_EQ(seconds_of(forward_schedule({0, 1, 0, 1}, 8)), 2 * 8 + 1);
  EXPECT_EQ(seconds_of(plan_pipeline_stream({0, 1, 2, 0, 1, 2}, {3, 3, 6}).schedule), 2 * 12 + 2);
  // Of stages there and back, the first rank waits for the last stage.
  EXPECT_EQ(seconds_of(plan_pipeline_stream({0, 1, 1, 0}, {4, 4}).schedule), 2 * 8 + 2);
}

TEST(PipelineStreamTest, TheRankOfTheLastStageTakesResultsAtOnceAndOthersWhileLaterBatchesAreUnderWay) {
  const auto stream = plan_pipeline_stream({0, 1}, {2, 1, 2, 1});
  EXPECT_EQ(stream.last_micro_batches, (std::vector<int>{1, 2, 4, 5}));
  // A forward and a send of each micro-batch: results 0 and 1 are taken before batches 2 and 3 begin.
  EXPECT_EQ(stream.takes[0], (std::vector<size_t>{6, 10, 12, 12}));
  // A receive and a forward.
  EXPECT_EQ(stream.takes[1], (std::vector<size_t>{4, 6, 10, 12}));
}

/// Messages of any number between the threads of a stream, which give up when one of them has failed.
class StreamChannels {
 public:
  using Key = std::tuple<int, int, int>;  // what, to which stage or rank, number

  void send(const Key& key) {
    const std::lock_guard lock(mutex_);
    ++counts_[key];
    changed_.notify_all();
  }
  /// Returns whether the message came.
  bool receive(const Key& key) {
    std::unique_lock lock(mutex_);
    const bool is_there = changed_.wait_for(lock, std::chrono::seconds(20), [&] { return counts_[key] > 0; });
    if (is_there) --counts_[key];
    return is_there;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, int> counts_;
};

/// A rank that counts its batches.
class CountedStream : public PipelineWork {
 public:
  CountedStream(const PipelineStream& stream, int rank, StreamChannels& channels)
      : stream_(stream), rank_(rank), channels_(channels) {}

  void forward(int stage, int micro_batch) override {
    while (begun_ == 0 || micro_batch > stream_.last_micro_batches[static_cast<size_t>(begun_ - 1)]) {
      ++begun_;
      most_ = std::max(most_, begun_ - taken_);
    }
    done_.emplace_back(stage, micro_batch);
  }
  void send_activation(int stage, int micro_batch) override { channels_.send({0, stage + 1, micro_batch}); }
  void receive_activation(int stage, int micro_batch) override {
    ASSERT_TRUE(channels_.receive({0, stage, micro_batch})) << stage << " " << micro_batch;
  }
  void backward(int, int) override { FAIL(); }
  void backward_inputs(int, int) override { FAIL(); }
  void backward_weights(int, int) override { FAIL(); }
  void send_gradient(int, int) override { FAIL(); }
  void receive_gradient(int, int) override { FAIL(); }

  void take(size_t batch) {
    EXPECT_EQ(batch, static_cast<size_t>(taken_));
    const int last = stream_.schedule.num_stages() - 1;
    if (stream_.schedule.rank_of_stage.back() == rank_) {
      ASSERT_FALSE(done_.empty());
      EXPECT_EQ(done_.back(), std::pair(last, stream_.last_micro_batches[batch]));
      for (int rank = 0; rank < stream_.schedule.num_ranks(); ++rank)
        channels_.send({1, rank, static_cast<int>(batch)});
    }
    ASSERT_TRUE(channels_.receive({1, rank_, static_cast<int>(batch)})) << "result " << batch;
    ++taken_;
  }

  int taken() const { return taken_; }
  int most() const { return most_; }
  size_t num_done() const { return done_.size(); }

 private:
  const PipelineStream& stream_;
  const int rank_;
  StreamChannels& channels_;
  std::vector<std::pair<int, int>> done_;
  int begun_ = 0;
  int taken_ = 0;
  int most_ = 0;
};

TEST(PipelineStreamTest, RandomStreamsRunToTheirEndWithAtMostAsManyBatchesUnderWayAsRanks) {
  std::mt19937 random(27);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + below(4);
    std::vector<int> rank_of_stage(static_cast<size_t>(ranks));
    std::iota(rank_of_stage.begin(), rank_of_stage.end(), 0);  // each rank has a stage at least
    for (int more = below(5); more > 0; --more) rank_of_stage.push_back(below(ranks));
    std::shuffle(rank_of_stage.begin(), rank_of_stage.end(), random);
    std::vector<int> micro_batches(static_cast<size_t>(1 + below(8)));
    for (auto& count : micro_batches) count = 1 + below(5);
    const auto stream = plan_pipeline_stream(rank_of_stage, micro_batches);
    StreamChannels channels;
    std::vector<CountedStream> works;
    for (int rank = 0; rank < ranks; ++rank) works.emplace_back(stream, rank, channels);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        auto& own = works[static_cast<size_t>(rank)];
        run_pipeline_stream_rank(stream, rank, own, [&](size_t batch) { own.take(batch); });
      });
    }
    for (auto& thread : threads) thread.join();
    size_t done = 0;
    for (const auto& work : works) {
      EXPECT_EQ(work.taken(), static_cast<int>(micro_batches.size()));
      EXPECT_LE(work.most(), ranks);
      done += work.num_done();
    }
    const int all = std::accumulate(micro_batches.begin(), micro_batches.end(), 0);
    EXPECT_EQ(done, rank_of_stage.size() * static_cast<size_t>(all));
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

TEST(PipelineStreamTest, RefusesWhatIsNoStream) {
  const auto error_of = [](const std::vector<int>& ranks, const std::vector<int>& micro_batches) {
    return message_of<InvalidArgument>([&] { plan_pipeline_stream(ranks, micro_batches); });
  };
  EXPECT_THAT(error_of({}, {1}), HasSubstr("expected stages and batches, but got 0 and 1"));
  EXPECT_THAT(error_of({0}, {}), HasSubstr("expected stages and batches, but got 1 and 0"));
  EXPECT_THAT(error_of({0, -1}, {1}), HasSubstr("expected ranks from 0 on, but got -1"));
  EXPECT_THAT(error_of({0, 1}, {2, 0}), HasSubstr("at least 1 micro-batch in each batch, but got 0"));
  const auto stream = plan_pipeline_stream({0, 1}, {2});
  StreamChannels channels;
  CountedStream work(stream, 0, channels);
  EXPECT_THAT(message_of<InvalidArgument>([&] { run_pipeline_stream_rank(stream, 2, work, [](size_t) {}); }),
              HasSubstr("expected a rank below 2, but got 2"));
}

}  // namespace
}  // namespace lockstep
