#include "lockstep/apps/train_ctr/ctr_training.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/command_line/numbers_error.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/training/metrics/auc.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/metrics/metrics.h"

namespace lockstep::apps {
namespace {

/// Runs once per replica. Returns its part of the global batch's mean loss.
torch::Tensor train_step(ReplicaContext& replica, CtrModel& model, CtrOptimizer& network,
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

torch::Tensor logits_of(ReplicaContext&, CtrModel& model, const ClickBatch& batch) {
  const torch::NoGradGuard no_grad;
  return model->forward(batch);
}

torch::Tensor labels_of(ReplicaContext&, const ClickBatch& batch) {
  return batch.target;
}

StepOptions<ClickBatch> step_options(Mirrored<CtrModel>& model, bool only_reads) {
  return {.look_up = [&model](const ClickBatch& shard,
                              TableLookups& lookups) { model.primary()->list_lookups(shard, lookups); },
          .only_reads = only_reads};
}

/// Accumulates scores row by row, in any order.
class Scoring {
 public:
  void add(const torch::Tensor& logits, const torch::Tensor& labels) {
    auc_.update(logits, labels);
    log_loss_.update(sigmoid_cross_entropy(logits.to(torch::kDouble), labels.to(torch::kDouble)));
  }
  CtrScores scores() const {
    return {.auc = auc_.value(auc_.state()), .log_loss = log_loss_.value(log_loss_.state())};
  }

 private:
  Auc auc_;
  Mean log_loss_;
};

/// Rows in each step of a test.
constexpr int64_t kTestRows = 8192;

/// Only Parquet files come in chunks.
template <typename Fn>
TrainingSteps<ClickBatch> make_steps(Strategy& strategy, const std::string& name, const Clicks& clicks,
                                     const DistributeOptions& options, const Fn& fn,
                                     const StepOptions<ClickBatch>& step_options) {
  if (clicks.are_parquet())
    return TrainingSteps<ClickBatch>(strategy, name, ParquetRange(clicks), options, fn, step_options);
  return TrainingSteps<ClickBatch>(strategy, name, clicks, options, fn, step_options);
}

}  // namespace

CtrTraining::CtrTraining(Strategy& strategy, const CtrOptions& options, const ClickData& data)
    : strategy_(strategy),
      data_(data),
      input_times_(options.profile_input ? std::make_shared<InputTimes>() : nullptr),
      model_(strategy.scope([&](ReplicaContext&) { return CtrModel(options); })),
      network_optimizer_(strategy.scope([&](ReplicaContext& replica) {
        return make_network_optimizer(options, model_[replica]->network_parameters());
      })),
      table_optimizer_(strategy.scope([&](ReplicaContext& replica) {
        return make_table_optimizer(options, model_[replica]->table_parameters());
      })),
      train_steps_(make_steps(
          strategy, "train", data.train,
          {.global_batch_size = options.global_batch_size,
           .shuffle_seed = options.seed,
           .num_workers = 1,
           .times = input_times_},
          [this](const StepSlot&, PerReplica<ClickBatch>& batch) {
            const auto losses =
                strategy_.run(train_step, model_, network_optimizer_, table_optimizer_, batch);
            return std::tuple(strategy_.reduce(ReduceOp::kSum, losses).item<double>(),
                              batch.batch_sizes()->global);
          },
          step_options(model_, /*only_reads=*/false))),
      test_steps_(make_steps(
          strategy, "test", data.test, {.global_batch_size = kTestRows},
          [this](const StepSlot&, PerReplica<ClickBatch>& batch) {
            return std::tuple(strategy_.gather(strategy_.run(logits_of, model_, batch)),
                              strategy_.gather(strategy_.run(labels_of, batch)));
          },
          step_options(model_, /*only_reads=*/true))) {}

void CtrTraining::train(int64_t first, int64_t end, const Listener& listener) {
  struct Enough {};
  const ReadTimes* const read_times = data_.train.read_times();
  if (read_times != nullptr) {
    if (!reads_) reads_.emplace();
    reads_->add(*read_times, -1);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto on_step = [&](int64_t step, const std::vector<ClosureValues>& slots) {
    double loss = 0;
    for (const auto& values : slots) loss += std::get<double>(values.at(0));
    if (!std::isfinite(loss))
      throw NumbersError(c10::str("step ", step, ": expected a finite loss, but got ", loss));
    ++result_.steps;
    result_.rows += std::get<int64_t>(slots.at(0).at(1));
    if (!listener.on_step(step, loss)) throw Enough();
  };
  try {
    train_steps_.run(first, end, on_step);
  } catch (const Enough&) {  // the listener ended the training
  }
  if (read_times != nullptr) reads_->add(*read_times);
  result_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

CtrScores CtrTraining::test() {
  Scoring scoring;
  test_steps_.run(0, test_steps_.steps_per_epoch(), [&](int64_t, const std::vector<ClosureValues>& slots) {
    for (const auto& values : slots)
      scoring.add(std::get<torch::Tensor>(values.at(0)).cpu(), std::get<torch::Tensor>(values.at(1)).cpu());
  });
  return scoring.scores();
}

std::optional<CtrScores> CtrTraining::best_scores() const {
  const auto count = static_cast<int64_t>(*data_.test.size());
  if (count == 0 || !data_.test.best_probability(0)) return std::nullopt;
  Scoring scoring;
  for (int64_t begin = 0; begin < count; begin += kTestRows) {
    std::vector<size_t> indices;
    std::vector<double> logits;
    for (int64_t i = begin; i < std::min(begin + kTestRows, count); ++i) {
      const double probability = *data_.test.best_probability(static_cast<size_t>(i));
      indices.push_back(static_cast<size_t>(i));
      logits.push_back(std::log(probability / (1 - probability)));
    }
    scoring.add(torch::tensor(logits, torch::kDouble), data_.test.get_batch(indices).target);
  }
  return scoring.scores();
}

std::vector<torch::Tensor> CtrTraining::parameters() {
  const torch::NoGradGuard no_grad;
  // If there are servers, run() begins with their values.
  const auto networks = strategy_.run(
      [](ReplicaContext&, CtrModel& model) {
        std::vector<torch::Tensor> copies;
        for (const auto& parameter : model->network_parameters())
          copies.push_back(parameter.detach().cpu().clone());
        return copies;
      },
      model_);
  auto parameters = networks.local_values().front();
  for (const auto& table : model_.primary()->tables()) parameters.push_back(table->read_rows());
  return parameters;
}

const WorkerTimes* CtrTraining::worker_times() const {
  const auto* served = dynamic_cast<const ParameterServerStrategy*>(&strategy_);
  return served == nullptr ? nullptr : &served->worker_times();
}

std::optional<InputProfile> CtrTraining::input_profile() const {
  if (!input_times_) return std::nullopt;
  if (result_.steps > 0)
    return ctr_input_profile(
        *input_times_, reads_,
        {.examples = result_.rows, .seconds = result_.seconds, .waited = train_steps_.data_wait_seconds()});
  // A worker of parameter servers, which reads for tests, too.
  std::optional<ReadTotals> reads;
  if (const ReadTimes* const times = data_.train.read_times()) reads.emplace().add(*times);
  return ctr_input_profile(*input_times_, reads, {});
}

CtrResult CtrTraining::result() const {
  auto result = result_;
  result.data_wait_seconds = train_steps_.data_wait_seconds();
  if (auto* served = dynamic_cast<ParameterServerStrategy*>(&strategy_)) {
    const auto& counts = served->update_counts();
    const auto& times = served->worker_times();
    result.serving = CtrServing{.staleness = counts.staleness,
                                .num_repeated = counts.num_repeated,
                                .num_outdated = counts.num_outdated,
                                .computing = times.computing,
                                .waiting = times.waiting,
                                .idle = times.idle,
                                .num_lost_workers = served->coordinator().num_lost_workers()};
  }
  return result;
}

}  // namespace lockstep::apps
