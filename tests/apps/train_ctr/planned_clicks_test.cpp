// Plans of click models against the bytes that LibTorch's allocator counted in trainings.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/apps/shared/planning/click_parts.h"
#include "lockstep/apps/train_ctr/click_data.h"
#include "lockstep/apps/train_ctr/ctr_model.h"
#include "lockstep/apps/train_ctr/ctr_training.h"
#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/support/parameter_server_job.h"
#include "lockstep/training/layouts/layout_planner.h"
#include "lockstep/training/metrics/loss_functions.h"

namespace lockstep::apps {
namespace {

struct PlannedClickTraining {
  std::string name;
  CtrWork work;
  int replicas = 1;
};

PlannedClickTraining training_of(const std::string& name, int replicas, CtrModelKind model, int64_t rows,
                                 int64_t width, int64_t batch,
                                 CtrOptimizerKind optimizer = CtrOptimizerKind::kAdagrad) {
  PlannedClickTraining training{.name = name, .replicas = replicas};
  training.work.model = model;
  training.work.table_rows = rows;
  training.work.embedding_dim = width;
  training.work.global_batch_size = batch;
  training.work.optimizer = optimizer;
  training.work.learning_rate = 0.01;
  return training;
}

const std::vector<PlannedClickTraining>& click_trainings() {
  constexpr auto kDlrm = CtrModelKind::kDlrm;
  constexpr auto kWideDeep = CtrModelKind::kWideDeep;
  static const std::vector<PlannedClickTraining> trainings{
      training_of("Dlrm", 1, kDlrm, 1 << 18, 16, 1024),
      training_of("DlrmAdam", 1, kDlrm, 50'000, 32, 2048, CtrOptimizerKind::kAdam),
      training_of("DlrmOfTwoReplicas", 2, kDlrm, 1 << 17, 16, 2048),
      training_of("DlrmOfThreeReplicas", 3, kDlrm, 40'000, 32, 6000, CtrOptimizerKind::kSgd),
      // The table is the smaller part.
      training_of("DlrmLargeBatch", 1, kDlrm, 20'000, 16, 8192),
      training_of("DlrmLargeBatches", 2, kDlrm, 20'000, 64, 8192),
      training_of("WideAndDeep", 1, kWideDeep, 1 << 18, 16, 1024),
      training_of("WideAndDeepAdam", 2, kWideDeep, 60'000, 32, 3000, CtrOptimizerKind::kAdam),
      training_of("WideAndDeepLargeBatch", 1, kWideDeep, 20'000, 16, 8192),
      training_of("WideAndDeepLargeBatches", 2, kWideDeep, 20'000, 8, 20'000, CtrOptimizerKind::kSgd)};
  return trainings;
}

/// A shard of random ids, all as likely.
ClickBatch random_shard(int64_t examples) {
  ClickBatch batch;
  batch.data = {torch::rand({examples, 13}), torch::randint(int64_t{1} << 40, {examples, 26})};
  batch.target = torch::randint(2, {examples}).to(torch::kFloat);
  return batch;
}

torch::Tensor click_step(ReplicaContext& replica, CtrModel& model, CtrOptimizer& network,
                         CtrOptimizer& tables, const ClickBatch& batch) {
  network->zero_grad();
  tables->zero_grad();
  const auto logits = model->forward(batch);
  const auto loss =
      compute_average_loss(replica, sigmoid_cross_entropy(logits, batch.target.to(logits.dtype())));
  loss.backward();
  replica.apply_gradients(*network);
  replica.apply_gradients(*tables);
  return loss.detach();
}

/// Returns the most bytes of a replica at a time in its third and later steps, as a mean of the replicas.
double measured_click_bytes(const PlannedClickTraining& training) {
  const int64_t before = measurement::counted_bytes();
  MirroredStrategy strategy(cpu_devices(training.replicas), {.intra_op_threads = 1});
  const CtrWork& work = training.work;
  auto model = strategy.scope([&](ReplicaContext&) { return CtrModel(work); });
  auto network = strategy.scope([&](ReplicaContext& replica) {
    return make_network_optimizer(work, model[replica]->network_parameters());
  });
  auto tables = strategy.scope([&](ReplicaContext& replica) {
    return make_table_optimizer(work, model[replica]->table_parameters());
  });
  std::vector<std::shared_ptr<measurement::TensorAccount>> accounts;
  for (int i = 0; i < training.replicas; ++i)
    accounts.push_back(std::make_shared<measurement::TensorAccount>());
  const int64_t examples = (work.global_batch_size + training.replicas - 1) / training.replicas;
  std::vector<int64_t> kept(accounts.size(), 0);
  constexpr int kSteps = 5;
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) {
      // All that is there so far is divided evenly: tables, state and the network.
      const int64_t each = (measurement::counted_bytes() - before) / training.replicas;
      for (size_t i = 0; i < accounts.size(); ++i) {
        kept[i] = each - accounts[i]->bytes();
        accounts[i]->restart_peak();
      }
    }
    strategy.run(
        [&](ReplicaContext& replica, CtrModel& own, CtrOptimizer& own_network, CtrOptimizer& own_tables) {
          const measurement::TensorAccountGuard guard(accounts[static_cast<size_t>(replica.replica_id())]);
          const ClickBatch batch = random_shard(examples);
          return click_step(replica, own, own_network, own_tables, batch);
        },
        model, network, tables);
  }
  double sum = 0;
  for (size_t i = 0; i < accounts.size(); ++i) sum += static_cast<double>(accounts[i]->peak() + kept[i]);
  return sum / training.replicas;
}

LayoutPlanner planner_of(const CtrWork& work, int64_t devices) {
  const int64_t states = work.optimizer == CtrOptimizerKind::kSgd       ? 0
                         : work.optimizer == CtrOptimizerKind::kAdagrad ? 1
                                                                        : 2;
  return LayoutPlanner(planned_clicks({.is_dlrm = work.model == CtrModelKind::kDlrm,
                                       .table_rows = work.table_rows,
                                       .embedding_dim = work.embedding_dim}),
                       {.devices = devices, .devices_per_machine = devices},
                       {.global_batch = work.global_batch_size, .optimizer_states = states});
}

class PlannedClickTrainingTest : public testing::TestWithParam<size_t> {};

TEST_P(PlannedClickTrainingTest, NeedsTheBytesThatWereCounted) {
  static const bool is_counting = (measurement::count_cpu_tensors(), true);
  ASSERT_TRUE(is_counting);
  torch::manual_seed(2);
  const auto& training = click_trainings()[GetParam()];
  const double measured = measured_click_bytes(training);
  const auto planned = planner_of(training.work, training.replicas).memory({.data = training.replicas});
  std::cout << training.name << ": planned " << planned.peak() / 1e6 << " MB, measured " << measured / 1e6
            << " MB, error " << 100 * (planned.peak() / measured - 1) << " %\n";
  EXPECT_NEAR(planned.peak() / measured, 1, 0.05)
      << "planned " << planned.peak() << ", measured " << measured << ", tables " << planned.tables
      << ", activations " << planned.activations << ", rows " << planned.rows << ", gradients "
      << planned.gradients;
}

// As a server makes its shards of the variables.
TEST(PlannedClickServers, HaveTheBytesOfTheirShards) {
  static const bool is_counting = (measurement::count_cpu_tensors(), true);
  ASSERT_TRUE(is_counting);
  constexpr int64_t kServers = 3;
  const auto training = training_of("", 1, CtrModelKind::kDlrm, 90'000, 16, 256);
  const auto planned =
      planner_of(training.work, kServers + 1).memory_of_ranks({.data = 1, .servers = kServers});
  const VariableShape table{{training.work.table_rows, training.work.embedding_dim}};
  const BalancedPartitioner partitioner({.num_servers = kServers});
  const auto shards = cut_rows(table.num_rows(), partitioner.num_shards(table));
  ASSERT_EQ(shards.size(), static_cast<size_t>(kServers));
  const int64_t before = measurement::counted_bytes();
  std::vector<std::unique_ptr<ParameterShard>> made;
  for (const auto& rows : shards) {
    const auto values = torch::zeros({rows.size(), training.work.embedding_dim});
    made.push_back(std::make_unique<ParameterShard>("table", values, AdagradRule{}));
  }
  const double each =
      static_cast<double>(measurement::counted_bytes() - before) / static_cast<double>(kServers);
  EXPECT_NEAR((planned.back().tables + planned.back().table_state) / each, 1, 0.001);
}

// Chief, workers and servers are threads of this process, so that their memory is counted together. The
// tables are most of it: nobody but the servers has them.
TEST(PlannedClickServers, NeedTheBytesOfAWholeJob) {
  static const bool is_counting = (measurement::count_cpu_tensors(), true);
  ASSERT_TRUE(is_counting);
  constexpr int kServers = 2, kWorkers = 2;
  CtrOptions options;
  static_cast<CtrWork&>(options) = training_of("", 1, CtrModelKind::kWideDeep, 400'000, 16, 512).work;
  options.train_rows = 100'000;
  options.test_rows = 1000;
  const int64_t before = measurement::counted_bytes();
  const ClickData data = open_click_data(options, nullptr);
  ParameterServerJob job(
      {.num_servers = kServers, .num_workers = kWorkers, .parameters = {.max_staleness = 0}});
  job.start_workers([&](ParameterServerStrategy& strategy) {
    return std::make_shared<CtrTraining>(strategy, options, data);
  });
  CtrTraining chief(job.chief(), options, data);
  const CtrTraining::Listener listener{.on_step = [](int64_t, double) { return true; }};
  chief.train(0, 3, listener);
  measurement::restart_counted_peak();
  chief.train(3, 9, listener);
  const auto measured = static_cast<double>(measurement::counted_peak() - before);
  job.end();
  const auto planned =
      planner_of(options, kServers + kWorkers).memory_of_ranks({.data = kWorkers, .servers = kServers});
  // The chief has the network, which it does not train.
  const double sum =
      kWorkers * planned.front().peak() + kServers * planned.back().peak() + planned.front().parameters;
  std::cout << "servers and workers: planned " << sum / 1e6 << " MB, measured " << measured / 1e6
            << " MB, error " << 100 * (sum / measured - 1) << " %\n";
  // Processes seldom need most at the same moment.
  EXPECT_LT(measured, 1.01 * sum);
  EXPECT_GT(measured, 0.9 * sum);
}

INSTANTIATE_TEST_SUITE_P(Clicks, PlannedClickTrainingTest,
                         testing::Range(size_t{0}, click_trainings().size()),
                         [](const auto& test) { return click_trainings()[test.param].name; });

}  // namespace
}  // namespace lockstep::apps
