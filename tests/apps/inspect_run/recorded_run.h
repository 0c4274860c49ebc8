#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/tests/support/text_files.h"
#include "lockstep/training/reporting/html/report.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/reporting/tensorboard/event_file.h"

namespace lockstep::testing {

/// Records a run of three epochs, the second of which was best, in `folder`. Without totals it has not ended.
inline void record_run(const std::string& folder, const std::optional<RunTotals>& totals) {
  const RunDirectory directory(folder);
  const RunPaths& paths = directory.paths();
  write_text(paths.config(), R"json({
    "format_version": 1, "program": "train_images", "version": "0.1.0",
    "values": {
      "data": {"value": "/data/mnist", "origin": "environment", "name": "LOCKSTEP_MNIST_DIR"},
      "devices": {"value": ["cpu:0", "cpu:1"], "origin": "flag"},
      "epochs": {"value": 5, "origin": "default"},
      "init-weights": {"value": null, "origin": "default"},
      "seed": {"value": 18446744073709551615, "origin": "file", "name": "earlier.json"}
    }
  })json");
  JsonLinesLog log(paths.metrics_jsonl());
  log.write(with_kind("start", {{"time", "2024-02-29T12:34:56Z"}, {"hosts", "node1,node2"}}));
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    log.write(with_kind("step", metric_row(StepRecord{.step = 10 * epoch, .loss = 1.5})));
    log.write(with_kind("epoch", metric_row(EpochRecord{.epoch = epoch,
                                                        .step = 10 * epoch,
                                                        .loss = 1.0 / static_cast<double>(epoch),
                                                        .validation_accuracy = epoch == 2 ? 0.75 : 0.5,
                                                        .seconds = 12.5})));
  }
  if (totals) log.write(with_kind("end", metric_row(*totals)));
  write_text(paths.checkpoints() + "/best.pt", std::string(2048, 'x'));
  std::filesystem::create_directory(paths.checkpoints() + "/last");
  write_text(paths.checkpoints() + "/last/state.pt", std::string(1024, 'x'));
  const EventFileWriter events(paths.tensorboard() + "/train");
  if (totals) write_report({.title = "run"}, paths.report());
}

/// Records a run of train_gpt with two of three tests.
inline void record_language_run(const std::string& folder, const std::optional<RunTotals>& totals) {
  const RunDirectory directory(folder);
  const RunPaths& paths = directory.paths();
  write_text(paths.config(), R"json({
    "format_version": 1, "program": "train_gpt", "version": "0.1.0",
    "values": {"steps": {"value": 250, "origin": "flag"}, "test-every": {"value": 100, "origin": "default"}}
  })json");
  JsonLinesLog log(paths.metrics_jsonl());
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    const auto number = static_cast<double>(epoch);
    log.write(with_kind("epoch", metric_row(EpochRecord{.epoch = epoch,
                                                        .step = 100 * epoch,
                                                        .loss = 5 - number,
                                                        .validation_loss = 4.5 - number,
                                                        .learning_rate = 0.003,
                                                        .images_per_second = 4096,
                                                        .seconds = 12.5,
                                                        .others = {{"perplexity", 50 / number},
                                                                   {"validation_perplexity", 30 / number},
                                                                   {"above_entropy", 1.5 - number / 2},
                                                                   {"tokens_per_second", 4096},
                                                                   {"model_flop_utilization", 0.125}}})));
  }
  if (totals) log.write(with_kind("end", metric_row(*totals)));
}

inline RunTotals three_epochs() {
  return {.epochs = 3, .steps = 30, .images = 1920, .seconds = 37.5};
}

}  // namespace lockstep::testing
