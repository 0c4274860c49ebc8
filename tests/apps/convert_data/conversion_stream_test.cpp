#include "lockstep/apps/convert_data/conversion_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "lockstep/tests/support/message_of.h"

namespace lockstep::apps {
namespace {

/// Blocks that are numbers. Earlier ones take longer to convert, so that later ones overtake them.
class NumberStream final : public ConversionStream {
 public:
  NumberStream(int count, int first_bad = -1) : count_(count), first_bad_(first_bad) {}

  Convert next() override {
    if (++num_readers_ != 1) throw std::logic_error("two threads read");
    const int number = next_ < count_ ? next_++ : -1;
    --num_readers_;
    if (number < 0) return {};
    return [this, number]() -> Write {
      std::this_thread::sleep_for(std::chrono::microseconds((number * 7919) % 700));
      if (first_bad_ >= 0 && number >= first_bad_)
        throw std::runtime_error("block " + std::to_string(number));
      return [this, number] { written.push_back(number); };
    };
  }
  void finish() override { ++num_finished; }

  std::vector<int> written;
  int num_finished = 0;

 private:
  const int count_;
  const int first_bad_;
  int next_ = 0;
  std::atomic<int> num_readers_{0};
};

TEST(RunStreams, WritesTheBlocksOfEachStreamOnceAndInOrder) {
  for (const int64_t threads : {1, 2, 5}) {
    std::vector<std::unique_ptr<ConversionStream>> streams;
    for (const int count : {0, 1, 200, 57}) streams.push_back(std::make_unique<NumberStream>(count));
    EXPECT_TRUE(run_streams(streams, {.threads = threads}));
    const std::vector<size_t> counts{0, 1, 200, 57};
    for (size_t i = 0; i < streams.size(); ++i) {
      const auto& stream = static_cast<const NumberStream&>(*streams[i]);
      std::vector<int> expected(counts[i]);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(stream.written, expected);
      EXPECT_EQ(stream.num_finished, 1);
    }
  }
}

TEST(RunStreams, ThrowsTheErrorOfTheFirstBadBlockAfterWritingThoseBefore) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<ConversionStream>> streams;
    streams.push_back(std::make_unique<NumberStream>(100, 31));
    EXPECT_EQ(message_of<std::runtime_error>([&] { run_streams(streams, {.threads = 4}); }), "block 31");
    const auto& stream = static_cast<const NumberStream&>(*streams[0]);
    EXPECT_EQ(stream.written.size(), 31U);
    EXPECT_EQ(stream.num_finished, 0);
  }
}

TEST(RunStreams, ReturnsFalseIfItIsCancelled) {
  std::vector<std::unique_ptr<ConversionStream>> streams;
  streams.push_back(std::make_unique<NumberStream>(1'000'000'000));
  EXPECT_FALSE(run_streams(streams, {.threads = 2, .is_cancelled = [] { return true; }}));
  EXPECT_EQ(static_cast<const NumberStream&>(*streams[0]).num_finished, 0);
}

}  // namespace
}  // namespace lockstep::apps
