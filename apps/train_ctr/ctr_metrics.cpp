#include "lockstep/apps/train_ctr/ctr_metrics.h"

namespace lockstep::apps {

void CtrMetrics::begin() {
  since_ = std::chrono::steady_clock::now();
  replica_waits_ = strategy_.extended().seconds_waited();
}

void CtrMetrics::step_done(double loss, const CtrCounts& counts) {
  if (!metrics_) return;
  const auto now = std::chrono::steady_clock::now();
  metrics_->add_steps({.examples = counts.rows - rows_,
                       .seconds = std::chrono::duration<double>(now - since_).count(),
                       .input_wait_seconds = counts.data_wait_seconds - data_wait_seconds_});
  since_ = now;
  rows_ = counts.rows;
  data_wait_seconds_ = counts.data_wait_seconds;
  metrics_->set_loss(loss);
  metrics_->set_learning_rate(options_.learning_rate);
  if (counts.workers) {
    count_workers(*counts.workers);
  } else {
    count_replica_waits();
  }
}

void CtrMetrics::count_replica_waits() {
  const auto waits = strategy_.extended().seconds_waited();
  for (size_t local = 0; local < waits.size(); ++local)
    metrics_->add_replica_wait(strategy_.first_local_replica() + static_cast<int>(local),
                               waits[local] - replica_waits_[local]);
  replica_waits_ = waits;
}

void CtrMetrics::count_workers(const WorkerSeconds& workers) {
  metrics_->add_worker_seconds({.computing = workers.computing - workers_.computing,
                                .waiting = workers.waiting - workers_.waiting,
                                .idle = workers.idle - workers_.idle});
  workers_ = workers;
}

void CtrMetrics::set_test_scores(const CtrScores& scores) {
  if (!metrics_) return;
  Logs logs;
  logs.set("test_auc", scores.auc);
  logs.set("test_log_loss", scores.log_loss);
  metrics_->set_logs(logs);
}

}  // namespace lockstep::apps
