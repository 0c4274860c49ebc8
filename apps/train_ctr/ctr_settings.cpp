#include "lockstep/apps/train_ctr/ctr_settings.h"

#include "lockstep/apps/shared/command_line/configuration_file.h"
#include "lockstep/apps/shared/command_line/kept_order.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/monitoring/metrics_flags.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"

namespace lockstep::apps {
namespace {

settings::NamedValues ctr_work_values(const CtrWork& work) {
  const bool is_read = !is_generated(work);
  return {{"data", work.data},
          {"test-data", settings::list(work.test_data)},
          {"test-share", settings::where(is_read && work.test_data.empty(), work.test_share)},
          {"train-rows", settings::count(work.train_rows)},
          {"test-rows", settings::count(work.test_rows)},
          {"skip-bad", settings::where(is_read, work.skip_bad)},
          {"index-dir", settings::text(work.index_dir)},
          {"parquet-memory", settings::where(is_read, work.parquet_memory)},
          {"model", ctr_model_name(work.model)},
          {"table-rows", settings::where(work.table_memory.empty(), work.table_rows)},
          {"embedding-dim", work.embedding_dim},
          {"min-frequency", settings::count(work.min_frequency)},
          {"steps-to-live", settings::count(work.steps_to_live)},
          {"global-batch-size", work.global_batch_size},
          {"optimizer", ctr_optimizer_name(work.optimizer)},
          {"learning-rate", work.learning_rate},
          {"precision", ctr_precision_name(work.precision)},
          {"seed", work.seed}};
}

settings::NamedValues ctr_run_values(const CtrOptions& options) {
  const bool is_saved = !options.backup_dir.empty();
  return {{"steps", options.steps},
          {"test-every", options.test_every},
          {"log-every", options.log_every},
          {"run-dir", settings::text(options.run_dir)},
          {"backup-dir", settings::text(options.backup_dir)},
          {"save-every", settings::where(is_saved, options.save_every)},
          {"resume", settings::where(is_saved, options.resume)},
          {"retryable-exit-code", settings::count(options.retryable_exit_code)},
          {"quiet", options.quiet}};
}

settings::NamedValues ctr_server_values(const CtrOptions& options) {
  const bool may_have_servers = options.strategy == "parameter_server" || options.strategy == "auto";
  const auto staleness = static_cast<int64_t>(options.max_staleness.value_or(0));
  return {{"table-memory", settings::text(options.table_memory)},
          {"table-disk", settings::text(options.table_disk)},
          {"max-staleness", settings::where(options.max_staleness.has_value(), staleness)},
          {"slots-per-step", settings::count(options.slots_per_step)},
          {"no-look-ahead", settings::where(may_have_servers, !options.looks_ahead)}};
}

}  // namespace

std::vector<Setting> ctr_settings(const CtrOptions& options, const std::map<std::string, Origin>& origins) {
  return settings::with_origins(
      {ctr_work_values(options), layout_policy_values(options), ctr_run_values(options),
       metrics_values(options), strategy_values(options), ctr_server_values(options)},
      origins);
}

std::vector<Setting> ctr_resolved_settings(const CtrFacts& facts) {
  return {{"data", facts.data, {}},
          {"rows-to-train-on", facts.num_train, {}},
          {"rows-to-test-on", facts.num_test, {}},
          {"malformed-rows", facts.num_malformed, {}},
          {"strategy", facts.strategy, {}},
          {"replicas", facts.replicas, {}},
          {kLanes, settings::count(facts.lanes), {}},
          {"first-step", facts.first_step, {}},
          {"settings-changed-on-resume", settings::list(facts.changed_settings), {}}};
}

std::string ctr_configuration_json(const CtrOptions& options, const CtrFacts& facts,
                                   const std::map<std::string, Origin>& origins, const std::string& version) {
  return configuration_json({.program = "train_ctr",
                             .version = version,
                             .values = ctr_settings(options, origins),
                             .resolved = ctr_resolved_settings(facts)});
}

}  // namespace lockstep::apps
