#include "lockstep/training/monitoring/prometheus_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/prometheus/scrape.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using testing::after_every_step;
using ::testing::HasSubstr;
using testing::interrupt_after;
using testing::scrape;
using Samples = std::map<std::string, double>;

/// Steps of an epoch of kExamples in batches of kBatchSize.
constexpr int64_t kStepsOfEpoch = (kExamples + kBatchSize - 1) / kBatchSize;

std::string of_rank(const std::string& name, int rank = 0) {
  return name + "{rank=\"" + std::to_string(rank) + "\"}";
}

std::string wait_of_replica(int replica, int rank = 0) {
  return "lockstep_replica_wait_seconds_total{rank=\"" + std::to_string(rank) + "\",replica=\"" +
         std::to_string(replica) + "\"}";
}

class PrometheusMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TrainingMetrics::is_available()) GTEST_SKIP() << "this build has no prometheus-cpp";
    metrics_ = std::make_shared<TrainingMetrics>();
    callback_ = std::make_shared<PrometheusMetrics>(metrics_, PrometheusMetricsOptions{.log_every = 1});
  }

  /// Returns the history, and adds the samples after each step to `after_steps_`.
  History fit(int64_t epochs, Callbacks more = {}) {
    Trainer<TanhNet> trainer(strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(),
                             cross_entropy, {{"accuracy", CategoricalAccuracy()}});
    const detail::TensorPairs pairs(data_.data, data_.target);
    Callbacks callbacks = std::move(more);
    callbacks.push_back(callback_);
    callbacks.push_back(
        after_every_step([&](FitState&) { after_steps_.push_back(scrape(metrics_->port())); }));
    return trainer.fit(pairs, {.epochs = epochs,
                               .validation = strategy_.distribute_dataset(pairs, {.global_batch_size = 7}),
                               .callbacks = callbacks,
                               .batches = {.global_batch_size = kBatchSize, .shuffle_seed = 1}});
  }

  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
  std::shared_ptr<TrainingMetrics> metrics_;
  std::shared_ptr<PrometheusMetrics> callback_;
  std::vector<Samples> after_steps_;
};

TEST_F(PrometheusMetricsTest, CountEveryStepAndExample) {
  fit(2);
  ASSERT_EQ(after_steps_.size(), 2 * kStepsOfEpoch);
  int64_t examples = 0;
  for (size_t i = 0; i < after_steps_.size(); ++i) {
    examples += (i + 1) % kStepsOfEpoch == 0 ? kExamples % kBatchSize : kBatchSize;
    EXPECT_EQ(after_steps_[i].at(of_rank("lockstep_steps_total")), static_cast<double>(i + 1));
    EXPECT_EQ(after_steps_[i].at(of_rank("lockstep_examples_total")), static_cast<double>(examples));
    EXPECT_EQ(after_steps_[i].at(of_rank("lockstep_epoch")), static_cast<double>(i / kStepsOfEpoch + 1));
    EXPECT_EQ(after_steps_[i].at(of_rank("lockstep_learning_rate")), 0.1);
  }
  EXPECT_EQ(after_steps_[0].at(of_rank("lockstep_planned_epochs")), 2);
}

TEST_F(PrometheusMetricsTest, ShowTheLossOfEachStepAndTheLogsOfTheLastEpoch) {
  // Without shuffling, the oracle sees the same batches.
  std::vector<double> alone;
  AloneOptions options;
  options.losses = &alone;
  options.schedule.epochs = 1;
  trained_alone<TanhNet>(make_tanh_net, data_, momentum_sgd(), options);
  torch::manual_seed(17);
  Trainer<TanhNet> trainer(
      strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const auto history = trainer.fit(data_.data, data_.target,
                                   {.callbacks = {callback_, after_every_step([&](FitState&) {
                                                    after_steps_.push_back(scrape(metrics_->port()));
                                                  })},
                                    .batches = {.global_batch_size = kBatchSize}});
  ASSERT_EQ(after_steps_.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_NEAR(after_steps_[i].at(of_rank("lockstep_loss")), alone[i], 1e-6);
  const auto samples = scrape(metrics_->port());
  for (const auto& [name, value] : history.epochs.front())
    EXPECT_NEAR(samples.at("lockstep_log{rank=\"0\",name=\"" + name + "\"}"), value, 1e-6 * std::abs(value));
}

TEST_F(PrometheusMetricsTest, SplitTheTimeIntoWaitsAndTheRest) {
  double seconds = 0, waits = 0;
  const auto note = after_every_step([&](FitState& state) {
    if (state.step == kStepsOfEpoch) {
      seconds += state.seconds;
      waits += state.wait_seconds;
    }
  });
  fit(2, {note});
  const auto samples = scrape(metrics_->port());
  EXPECT_NEAR(samples.at(of_rank("lockstep_training_seconds_total")), seconds, 1e-6);
  EXPECT_NEAR(samples.at(of_rank("lockstep_input_wait_seconds_total")), waits, 1e-6);
  EXPECT_GT(seconds, waits);
}

/// A net whose forward is late on replica 1.
struct LateNetImpl : public TanhNetImpl {
  explicit LateNetImpl(int replica = 0) : replica_(replica) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (replica_ == 1) std::this_thread::sleep_for(kLateness);
    return TanhNetImpl::forward(x);
  }

  static constexpr std::chrono::milliseconds kLateness{50};

 private:
  const int replica_;
};
TORCH_MODULE(LateNet);

TEST_F(PrometheusMetricsTest, CountHowLongEachReplicaWaitsForTheOthersInTraining) {
  std::vector<double> waited(2), before;
  const auto note = after_every_step([&](FitState& state) {
    if (state.step < kStepsOfEpoch) return;
    const auto total = state.strategy().extended().seconds_waited();
    for (size_t i = 0; i < 2; ++i) waited[i] += total[i] - before[i];
  });
  Trainer<LateNet> trainer(
      strategy_, [](ReplicaContext& replica) { return LateNet(replica.replica_id()); }, momentum_sgd(),
      cross_entropy);
  const detail::TensorPairs pairs(data_.data, data_.target);
  for (const int64_t epochs_done : {0, 1}) {
    // The validation's waits are not counted.
    before = strategy_.extended().seconds_waited();
    trainer.fit(pairs, {.validation = strategy_.distribute_dataset(pairs, {.global_batch_size = 7}),
                        .callbacks = {callback_, note},
                        .batches = {.global_batch_size = kBatchSize},
                        .epochs_done = epochs_done});
  }
  const auto samples = scrape(metrics_->port());
  for (const int replica : {0, 1}) {
    EXPECT_NEAR(samples.at(wait_of_replica(replica)), waited[static_cast<size_t>(replica)], 1e-6);
  }
  const double lateness = std::chrono::duration<double>(LateNetImpl::kLateness).count() * 2 * kStepsOfEpoch;
  EXPECT_GT(waited[0], 0.8 * lateness);
  EXPECT_LT(waited[1], 0.5 * lateness);
  EXPECT_LT(waited[0], samples.at(of_rank("lockstep_training_seconds_total")));
}

TEST_F(PrometheusMetricsTest, CountUndoneSteps) {
  const auto guard = std::make_shared<NanGuard>(
      NanGuardOptions{.action = NotFiniteAction::kSkip, .on_message = [](const std::string&) {}});
  const auto breaks_weights = after_every_step([](FitState& state) {
    if (state.global_step != 2 && state.global_step != 4) return;
    const torch::NoGradGuard no_grad;
    for (const auto& module : state.objects().modules)
      module->parameters().front().fill_(std::numeric_limits<double>::quiet_NaN());
  });
  fit(2, {breaks_weights, guard});
  EXPECT_EQ(guard->num_undone(), 2);
  EXPECT_EQ(scrape(metrics_->port()).at("lockstep_faults_total{rank=\"0\",kind=\"not_finite\"}"), 2);
}

TEST_F(PrometheusMetricsTest, CountOnlyThisProcessesStepsOfAResumedFit) {
  const testing::TemporaryFolder folder;
  const auto backup = [&] {
    return std::make_shared<BackupAndRestore>(BackupOptions{.folder = folder.path() + "/b"});
  };
  fit(2, {interrupt_after(2), backup()});
  metrics_ = std::make_shared<TrainingMetrics>();
  callback_ = std::make_shared<PrometheusMetrics>(metrics_);
  fit(2, {backup()});
  const auto samples = scrape(metrics_->port());
  EXPECT_EQ(samples.at(of_rank("lockstep_steps_total")), 2 * kStepsOfEpoch - 2);
  EXPECT_EQ(samples.at(of_rank("lockstep_examples_total")), 2 * kExamples - 2 * kBatchSize);
}

TEST_F(PrometheusMetricsTest, AreServedByEveryWorkerWithItsRankAndTheJobsRestarts) {
  std::array<Samples, 2> of_workers;
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const int rank = strategy.cluster_resolver()->rank();
    const auto metrics = std::make_shared<TrainingMetrics>(TrainingMetricsOptions{.rank = rank});
    Trainer<TanhNet> trainer(
        strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
    trainer.fit(data_.data, data_.target,
                {.callbacks = {std::make_shared<PrometheusMetrics>(metrics)},
                 .batches = {.global_batch_size = kBatchSize}});
    of_workers[static_cast<size_t>(rank)] = scrape(metrics->port());
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  for (int rank = 0; rank < 2; ++rank) {
    const auto& samples = of_workers[static_cast<size_t>(rank)];
    EXPECT_EQ(samples.at(of_rank("lockstep_steps_total", rank)), kStepsOfEpoch);
    EXPECT_EQ(samples.at(of_rank("lockstep_examples_total", rank)), kExamples);
    // Replicas are numbered over all workers, and each worker has one.
    EXPECT_GE(samples.at(wait_of_replica(rank, rank)), 0);
    EXPECT_FALSE(samples.contains(wait_of_replica(1 - rank, rank)));
  }
}

TEST_F(PrometheusMetricsTest, AreServedAtTheWorkersOwnPortIfOnlyAPortIsGiven) {
  // The second worker's port is the first one's successor, which the system must have free.
  int port = 0;
  for (int tries = 0; tries < 100 && port == 0; ++tries) {
    const TrainingMetrics first;
    try {
      const TrainingMetrics second({.port = first.port() + 1});
      port = first.port();
    } catch (const InvalidArgument&) {
      // in use
    }
  }
  ASSERT_NE(port, 0);
  std::array<Samples, 2> of_workers;
  std::array<int, 2> local_ranks{-1, -1};
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
    local_ranks[rank] = strategy.cluster_resolver()->local_rank();
    const auto callback = std::make_shared<PrometheusMetrics>(PrometheusMetricsOptions{.port = port});
    EXPECT_EQ(callback->metrics(), nullptr);
    Trainer<TanhNet> trainer(
        strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
    trainer.fit(data_.data, data_.target,
                {.callbacks = {callback}, .batches = {.global_batch_size = kBatchSize}});
    EXPECT_EQ(callback->metrics()->port(), port + local_ranks[rank]);
    of_workers[rank] = scrape(port + local_ranks[rank]);
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  EXPECT_THAT(local_ranks, ::testing::ElementsAre(0, 1));
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(of_workers[static_cast<size_t>(rank)].at(of_rank("lockstep_examples_total", rank)), kExamples);
}

TEST_F(PrometheusMetricsTest, RefuseWrongOptions) {
  EXPECT_THAT(message_of<InvalidArgument>([] { PrometheusMetrics callback(PrometheusMetricsOptions{}); }),
              HasSubstr("expected a port in PrometheusMetricsOptions"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { PrometheusMetrics callback(metrics_, {.port = 9400}); }),
              HasSubstr("both, with port 9400"));
  EXPECT_THAT(message_of<InvalidArgument>([] { PrometheusMetrics callback(nullptr); }), HasSubstr("null"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { PrometheusMetrics callback(metrics_, {.log_every = 0}); }),
              HasSubstr("log_every of 1 or more steps, but got 0"));
}

}  // namespace
}  // namespace lockstep
