#include "lockstep/training/reporting/prometheus/training_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/prometheus/scrape.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::http_get;
using testing::scrape;

#define SKIP_WITHOUT_PROMETHEUS() \
  if (!TrainingMetrics::is_available()) GTEST_SKIP() << "this build has no prometheus-cpp"

TEST(TrainingMetrics, CountStepsExamplesAndSeconds) {
  SKIP_WITHOUT_PROMETHEUS();
  TrainingMetrics metrics({.rank = 3});
  metrics.add_steps({.examples = 64, .seconds = 0.5, .input_wait_seconds = 0.125});
  metrics.add_steps({.steps = 2, .examples = 100, .seconds = 0.25});
  const auto samples = scrape(metrics.port());
  EXPECT_EQ(samples.at("lockstep_steps_total{rank=\"3\"}"), 3);
  EXPECT_EQ(samples.at("lockstep_examples_total{rank=\"3\"}"), 164);
  EXPECT_EQ(samples.at("lockstep_training_seconds_total{rank=\"3\"}"), 0.75);
  EXPECT_EQ(samples.at("lockstep_input_wait_seconds_total{rank=\"3\"}"), 0.125);
}

TEST(TrainingMetrics, ShowTheSpeedOfTheLastSecondOfSteps) {
  SKIP_WITHOUT_PROMETHEUS();
  TrainingMetrics metrics;
  const auto speed = [&] { return scrape(metrics.port()).at("lockstep_examples_per_second{rank=\"0\"}"); };
  EXPECT_EQ(speed(), 0);
  metrics.add_steps({.examples = 10, .seconds = 0.1});  // the first call counts at once
  EXPECT_DOUBLE_EQ(speed(), 100);
  metrics.add_steps({.examples = 30, .seconds = 0.5});
  EXPECT_DOUBLE_EQ(speed(), 100);  // half a second is not enough
  metrics.add_steps({.examples = 45, .seconds = 0.75});
  EXPECT_DOUBLE_EQ(speed(), 75 / 1.25);
}

TEST(TrainingMetrics, ShowNoLossAndNoEpochBeforeThereIsOne) {
  SKIP_WITHOUT_PROMETHEUS();
  TrainingMetrics metrics;
  for (const std::string name : {"loss", "epoch", "planned_epochs", "learning_rate"})
    EXPECT_FALSE(scrape(metrics.port()).contains("lockstep_" + name + "{rank=\"0\"}")) << name;
  metrics.set_loss(0.25);
  metrics.set_loss(0.125);
  EXPECT_EQ(scrape(metrics.port()).at("lockstep_loss{rank=\"0\"}"), 0.125);
}

TEST(TrainingMetrics, ShowFaultsFromTheStart) {
  SKIP_WITHOUT_PROMETHEUS();
  TrainingMetrics metrics;
  auto samples = scrape(metrics.port());
  for (const std::string kind : {"not_finite", "restart", "bad_example"})
    EXPECT_EQ(samples.at("lockstep_faults_total{rank=\"0\",kind=\"" + kind + "\"}"), 0) << kind;
  metrics.add_faults(TrainingFault::kBadExample, 7);
  metrics.add_faults(TrainingFault::kBadExample);
  EXPECT_EQ(scrape(metrics.port()).at("lockstep_faults_total{rank=\"0\",kind=\"bad_example\"}"), 8);
}

TEST(TrainingMetrics, ShowTheProcessesMemoryAndTime) {
  SKIP_WITHOUT_PROMETHEUS();
  TrainingMetrics metrics;
  const auto samples = scrape(metrics.port());
  std::ifstream file("/proc/self/status");
  std::string word;
  double resident_kib = 0;
  while (file >> word && word != "VmRSS:") {
  }
  file >> resident_kib;
  EXPECT_NEAR(samples.at("process_resident_memory_bytes{rank=\"0\"}"), resident_kib * 1024, 64e6);
  EXPECT_GT(samples.at("process_cpu_seconds_total{rank=\"0\"}"), 0);
  EXPECT_NEAR(samples.at("process_start_time_seconds{rank=\"0\"}"), static_cast<double>(std::time(nullptr)),
              600);
}

TEST(TrainingMetrics, LoseNoUpdateOfManyThreadsDuringScrapes) {
  SKIP_WITHOUT_PROMETHEUS();
  constexpr int kThreads = 4, kUpdates = 500;
  TrainingMetrics metrics;
  std::atomic<bool> is_done = false;
  std::thread scraper([&] {
    while (!is_done) scrape(metrics.port());
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kUpdates; ++i) {
        metrics.add_steps({.examples = 2, .seconds = 0.5});
        Logs logs;
        logs.set("log" + std::to_string(thread), i);
        metrics.set_logs(logs);
        metrics.set_device_memory("gpu:" + std::to_string(i % 3), i);
        metrics.add_faults(TrainingFault::kNotFinite);
        metrics.add_worker_seconds({.waiting = 1});
        metrics.add_replica_wait(1, 0.25);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  is_done = true;
  scraper.join();
  const auto samples = scrape(metrics.port());
  EXPECT_EQ(samples.at("lockstep_steps_total{rank=\"0\"}"), kThreads * kUpdates);
  EXPECT_EQ(samples.at("lockstep_examples_total{rank=\"0\"}"), 2 * kThreads * kUpdates);
  EXPECT_EQ(samples.at("lockstep_faults_total{rank=\"0\",kind=\"not_finite\"}"), kThreads * kUpdates);
  EXPECT_EQ(samples.at("lockstep_worker_seconds_total{rank=\"0\",state=\"waiting\"}"), kThreads * kUpdates);
  EXPECT_EQ(samples.at("lockstep_replica_wait_seconds_total{rank=\"0\",replica=\"1\"}"),
            0.25 * kThreads * kUpdates);
  EXPECT_EQ(samples.at("lockstep_log{rank=\"0\",name=\"log3\"}"), kUpdates - 1);
}

TEST(TrainingMetrics, AreServedUntilTheyAreDestroyed) {
  SKIP_WITHOUT_PROMETHEUS();
  int port = 0;
  {
    TrainingMetrics metrics;
    port = metrics.port();
    EXPECT_EQ(metrics.url(), "http://127.0.0.1:" + std::to_string(port) + "/metrics");
    EXPECT_THAT(http_get(port, "/metrics"), HasSubstr("200 OK"));
    EXPECT_THAT(http_get(port, "/"), HasSubstr("404 Not Found"));
  }
  EXPECT_EQ(http_get(port, "/metrics"), "");
}

TEST(TrainingMetrics, RefuseAPortThatCannotBeUsed) {
  SKIP_WITHOUT_PROMETHEUS();
  TrainingMetrics first;
  const auto in_use = message_of<InvalidArgument>([&] { TrainingMetrics second({.port = first.port()}); });
  EXPECT_EQ(in_use, "[TrainingMetrics] expected an address and a port to listen on, but got 127.0.0.1:" +
                        std::to_string(first.port()) + ": Address already in use");
  EXPECT_THAT(message_of<InvalidArgument>([] { TrainingMetrics metrics({.port = 70000}); }),
              HasSubstr("from 0 to 65535, but got 70000"));
  EXPECT_THAT(message_of<InvalidArgument>([] { TrainingMetrics metrics({.address = "192.0.2.1"}); }),
              HasSubstr("192.0.2.1"));
}

}  // namespace
}  // namespace lockstep
