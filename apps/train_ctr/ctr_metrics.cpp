#include "lockstep/apps/train_ctr/ctr_metrics.h"

namespace lockstep::apps {

void CtrMetrics::begin() {
  since_ = std::chrono::steady_clock::now();
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
  if (!counts.workers) return;
  metrics_->add_worker_seconds({.computing = counts.workers->computing - workers_.computing,
                                .waiting = counts.workers->waiting - workers_.waiting,
                                .idle = counts.workers->idle - workers_.idle});
  workers_ = *counts.workers;
}

void CtrMetrics::set_test_scores(const CtrScores& scores) {
  if (!metrics_) return;
  Logs logs;
  logs.set("test_auc", scores.auc);
  logs.set("test_log_loss", scores.log_loss);
  metrics_->set_logs(logs);
}

}  // namespace lockstep::apps
