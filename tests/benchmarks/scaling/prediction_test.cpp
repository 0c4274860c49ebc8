#include "lockstep/benchmarks/scaling/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const DeviceLink kPerfect{0, std::numeric_limits<double>::infinity()};

ComputeTimes small_step() {
  return {.forward_seconds = 1,
          .backward_seconds = 2,
          .optimizer_seconds = 0.5,
          .gradients = {{4e6, 0.5}, {8e6, 2}}};
}

/// Each gradient is a bucket.
constexpr BucketOptions kSmall{.first_bucket_bytes = 1, .bucket_bytes = 1};

/// Software that costs 1 ms a round and nothing else.
ClusterModel small_cluster() {
  const ExchangeCost plain{.software = {.seconds_per_message = 1e-3}};
  ExchangeCost compressed = plain;
  compressed.sent_share = 0.5;
  return {plain, compressed, 100};
}

TEST(ParseLink, ReadsGigabitsAndMicroseconds) {
  const auto [name, link] = parse_link("2.5:40");
  EXPECT_EQ(name, "2.5 Gbit/s, 40 us");
  EXPECT_DOUBLE_EQ(link.bytes_per_second, 2.5e9 / 8);
  EXPECT_DOUBLE_EQ(link.latency_seconds, 40e-6);
}

TEST(ParseLink, RefusesAnythingElse) {
  for (const char* text : {"", "10", "10:", ":5", "0:5", "-1:5", "10:x", "10:5us", "nan:5"}) {
    EXPECT_THAT([&] { parse_link(text); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("'" + std::string(text) + "'")));
  }
}

TEST(ComputeModel, IsALineOverTheImages) {
  const auto times = [](double images) {
    const double backward = 2 + 0.2 * images;
    return ComputeTimes{.forward_seconds = 1 + 0.1 * images,
                        .backward_seconds = backward,
                        .optimizer_seconds = 0.5,
                        .gradients = {{100, backward / 4}, {200, backward}}};
  };
  const auto compute = ComputeModel({{8, times(8)}, {32, times(32)}}).at(100);
  EXPECT_NEAR(compute.forward_seconds, 11, 1e-9);
  EXPECT_NEAR(compute.backward_seconds, 22, 1e-9);
  EXPECT_NEAR(compute.gradients[0].ready_seconds, 5.5, 1e-9);
  EXPECT_NEAR(compute.gradients[1].ready_seconds, 22, 1e-9);
  EXPECT_THROW(ComputeModel({}), std::invalid_argument);
}

TEST(PredictStep, OfOneWorkerIsTheCompute) {
  for (const auto& communication : kCommunications)
    EXPECT_EQ(predict_step(small_cluster(), small_step(), 1, {1, 1}, communication, kSmall), 3.5);
}

TEST(PredictStep, IsTheComputeWhereLinkAndSoftwareAreFree) {
  for (const auto& communication : kCommunications)
    EXPECT_EQ(predict_step({{}, {}, 100}, small_step(), 1024, kPerfect, communication, kSmall), 3.5);
}

// By hand, for 2 workers: the first 4 MB take 40 ms at 100 MB/s within backward, the other 8 MB 80 ms after
// it, each in two rounds of 1 ms; the flags (100 tensors, 2 replicas) have 808 bytes and one round.
TEST(PredictStep, AddsWhatIsNotHidden) {
  const DeviceLink link{0, 1e8};
  const double flags = 1e-3 + 808 / 1e8;
  EXPECT_NEAR(predict_step(small_cluster(), small_step(), 2, link, {Overlap::kBackward, false}, kSmall),
              3.5 + 0.082 + flags, 1e-9);
  EXPECT_NEAR(predict_step(small_cluster(), small_step(), 2, link, {Overlap::kNone, false}, kSmall),
              3.5 + 0.042 + 0.082 + flags, 1e-9);
  EXPECT_NEAR(predict_step(small_cluster(), small_step(), 2, link, {Overlap::kNone, true}, kSmall),
              3.5 + 0.022 + 0.042 + flags, 1e-9);
}

TEST(PredictStep, TakesLongerWithMoreWorkersAndSlowerLinks) {
  for (const auto& communication : kCommunications) {
    double before = 0;
    for (int workers = 1; workers <= 1024; workers *= 2) {
      const double slow =
          predict_step(small_cluster(), small_step(), workers, {50e-6, 1e8}, communication, kSmall);
      const double fast =
          predict_step(small_cluster(), small_step(), workers, {5e-6, 1e10}, communication, kSmall);
      EXPECT_GT(slow, before);
      EXPECT_LE(fast, slow);
      before = slow;
    }
  }
}

TEST(BucketsOfLibrary, AreChosenUnlessGiven) {
  const ExchangePolicy policy;
  const auto chosen = buckets_of_library({}, 1024, policy);
  EXPECT_EQ(chosen.first_bucket_bytes, 1 << 20);
  EXPECT_EQ(chosen.bucket_bytes, choose_bucket_bytes(1024, policy));
  EXPECT_EQ(buckets_of_library({.bucket_bytes = 7}, 1024, policy).bucket_bytes, 7);
}

TEST(PredictLocalStep, HidesNothingWhereProcessesShareTheCores) {
  // An exchange of any size takes 1 s, half of it on a process's share of the processor.
  const LocalFit busy{.num_ranks = 4, .seconds = {1, 0}, .cpu_seconds = {0.5, 0}};
  const auto predict = [&](int cores, Overlap overlap) {
    return predict_local_step(busy, busy, small_step(), 100, cores, overlap, kSmall);
  };
  EXPECT_DOUBLE_EQ(predict(2, Overlap::kNone), 3.5 + 3);
  EXPECT_DOUBLE_EQ(predict(2, Overlap::kBackward), 3.5 + 3);
  // With a core each, backward runs at half speed from 0.5 to 1.5 s, and ends at 2.5 s.
  EXPECT_DOUBLE_EQ(predict(4, Overlap::kBackward), 3.5 + 0.5 + 2);
}

// By hand: 16 GPUs, one bucket, 1 s of compute. A flat ring has 30 messages and 1.875 of the bytes over the
// slower link, the hierarchical one 6 messages and 1.5 of the bytes over each link.
TEST(PredictGpuStep, ComparesAFlatRingWithAHierarchicalOne) {
  const GpuCluster cluster{
      .topology = {.num_machines = 4, .replicas_each = 4, .within = {1e-3, 1e9}, .between = {2e-3, 1e8}},
      .compute_seconds = 1,
      .gradient_bytes = 1e7,
      .first_bucket_bytes = 1e7,
      .bucket_bytes = 1e7};
  const Communication plain{Overlap::kNone, false};
  EXPECT_NEAR(predict_gpu_step(cluster, RingKind::kFlat, plain), 1 + 0.060 + 0.1875, 1e-9);
  EXPECT_NEAR(predict_gpu_step(cluster, RingKind::kHierarchical, plain), 1 + 0.018 + 0.015 + 0.15, 1e-9);
  const Communication compressed{Overlap::kNone, true};
  EXPECT_NEAR(predict_gpu_step(cluster, RingKind::kFlat, compressed), 1 + 0.060 + 0.09375, 1e-9);
}

}  // namespace
}  // namespace lockstep::benchmarks
