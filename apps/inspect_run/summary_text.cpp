#include "lockstep/apps/inspect_run/summary_text.h"

#include <algorithm>
#include <cmath>

#include "lockstep/apps/shared/command_line/aligned_table.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"

namespace lockstep::apps {
namespace {

std::string share_text(double share) {
  return std::isfinite(share) ? fixed_number(share * 100, 2) + " %" : short_number(share);
}

std::string number_text(double value) {
  return short_number(value);
}

std::string whole_text(double value) {
  return fixed_number(value, 0);
}

struct Column {
  std::string metric;
  std::string name;
  std::string (*format)(double);
};

std::vector<Column> columns_of_language_models() {
  return {{"epoch", "epoch", whole_text},
          {"loss", "loss", number_text},
          {"perplexity", "perplexity", number_text},
          {"validation_loss", "val. loss", number_text},
          {"validation_perplexity", "val. perplexity", number_text},
          {"above_entropy", "above entropy", number_text},
          {"learning_rate", "learning rate", number_text},
          {"tokens_per_second", "tokens/s", whole_text},
          {"model_flop_utilization", "MFU", share_text},
          {"data_wait_share", "data wait", share_text},
          {"seconds", "time", seconds_text}};
}

std::vector<Column> epoch_columns(const RunSummary& summary) {
  if (summary.program == "train_gpt") return columns_of_language_models();
  return {{"epoch", "epoch", whole_text},
          {"loss", "loss", number_text},
          {"accuracy", "accuracy", share_text},
          {"validation_loss", "val. loss", number_text},
          {"validation_accuracy", "val. accuracy", share_text},
          {"learning_rate", "learning rate", number_text},
          {"images_per_second", examples_of(summary) + "/s", whole_text},
          {"data_wait_share", "data wait", share_text},
          {"seconds", "time", seconds_text}};
}

std::string counted(double count, const std::string& one) {
  return fixed_number(count, 0) + " " + one + (count == 1 ? "" : "s");
}

std::string text_value(const MetricRow& row, const std::string& name) {
  const MetricValue* value = find_value(row, name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? "" : printable(*text);
}

/// Returns a line such as "started 2026-01-31T12:34:56Z on node1", or an empty string if nothing is known.
std::string start_line(const RunSummary& summary) {
  if (!summary.start) return "";
  const std::string time = text_value(*summary.start, "time"), hosts = text_value(*summary.start, "hosts");
  if (time.empty()) return "";
  return "  started " + time + (hosts.empty() ? "" : " on " + hosts) + "\n";
}

std::string headline(const RunSummary& summary) {
  std::string status = run_status(summary);
  std::replace(status.begin(), status.end(), '_', ' ');
  std::string text = printable(summary.folder) + ": " + printable(status);
  if (!summary.end && summary.owner) text += ", " + printable(*summary.owner);
  if (!summary.end && !summary.owner) text += ": metrics.jsonl has no end, and no process uses the directory";
  text += "\n" + start_line(summary);
  if (!summary.end) {
    const auto num_epochs = static_cast<double>(summary.epochs.count());
    if (!summary.planned_epochs) return text + "  " + counted(num_epochs, "epoch") + " recorded\n";
    return text + "  " + fixed_number(num_epochs, 0) + " of " +
           counted(static_cast<double>(*summary.planned_epochs), "epoch") + " recorded\n";
  }
  const auto total = [&](const char* name) { return find_number(*summary.end, name); };
  std::vector<std::string> totals;
  if (const auto epochs = total("epochs")) totals.push_back(counted(*epochs, "epoch"));
  if (const auto steps = total("steps")) totals.push_back(counted(*steps, "step"));
  if (const auto before = total("steps_before"))
    totals.push_back(fixed_number(*before, 0) + " of them before it resumed");
  if (const auto images = total("images")) {
    std::string example = examples_of(summary);
    example.pop_back();
    totals.push_back(counted(*images, example));
  }
  if (const auto seconds = total("seconds")) totals.push_back(seconds_text(*seconds));
  if (const auto seconds = total("start_up_seconds"); seconds && *seconds > 0)
    totals.push_back(seconds_text(*seconds) + " of start-up");
  std::string line;
  for (const auto& each : totals) line += (line.empty() ? "  " : ", ") + each;
  text += line.empty() ? "" : line + "\n";
  const std::string reason = text_value(*summary.end, "reason");
  return reason.empty() ? text : text + "  " + reason + "\n";
}

std::string configuration_part(const RunSummary& summary) {
  if (summary.configuration.empty()) return "";
  auto values = summary.configuration;
  std::stable_partition(values.begin(), values.end(),
                        [](const auto& value) { return value.origin != "default"; });
  const size_t num_values = values.size();
  std::erase_if(values, [](const auto& value) { return value.value == "none" && value.origin == "default"; });
  TextTable rows;
  for (const auto& [name, value, origin] : values) {
    rows.push_back({printable(name), printable(value), printable(origin)});
  }
  const size_t num_left_out = num_values - values.size();
  const std::string program =
      summary.program.empty() ? "" : " of " + printable(summary.program + " " + summary.version);
  const std::string left_out =
      num_left_out == 0 ? "" : "  and " + std::to_string(num_left_out) + " without a value\n";
  return "\nConfiguration" + program + "\n" + aligned_table(rows) + left_out;
}

std::string best_line(const BestEpoch& best) {
  std::string metric = best.metric;
  std::replace(metric.begin(), metric.end(), '_', ' ');
  const std::string value = metric.ends_with("accuracy") ? share_text(best.value) : short_number(best.value);
  return "  best: epoch " + (best.number ? whole_text(*best.number) : std::to_string(best.index + 1)) + ", " +
         metric + " " + value + "\n";
}

std::string epochs_part(const RunSummary& summary) {
  const EpochSummary& epochs = summary.epochs;
  if (epochs.count() == 0) return "";
  auto columns = epoch_columns(summary);
  std::erase_if(columns, [&](const Column& column) { return !epochs.has_number(column.metric); });
  TextTable rows(1);
  for (const auto& column : columns) rows[0].push_back(column.name);
  for (const MetricRow& row : epochs.last()) {
    std::vector<std::string> cells;
    for (const auto& column : columns) {
      const auto value = find_number(row, column.metric);
      cells.push_back(value ? column.format(*value) : "-");
    }
    rows.push_back(std::move(cells));
  }
  const size_t num_listed = rows.size() - 1;
  std::string text = "\nEpochs";
  if (num_listed < epochs.count())
    text += ", the last " + std::to_string(num_listed) + " of " + std::to_string(epochs.count());
  text += "\n" + aligned_table(rows, kEveryColumn);
  const auto best = epochs.best();
  return best ? text + best_line(*best) : text;
}

/// Values that are no numbers of bytes are left out: anybody may have written the file.
std::string memory_part(const RunSummary& summary) {
  if (!summary.memory) return "";
  constexpr double kMostBytes = 1e18;
  TextTable rows;
  for (const auto& [name, value] : *summary.memory) {
    const auto bytes = find_number(*summary.memory, name);
    if (!bytes || !(*bytes >= 0 && *bytes <= kMostBytes)) continue;
    std::string words = printable(name);
    std::replace(words.begin(), words.end(), '_', ' ');
    rows.push_back({words, bytes_text(static_cast<uint64_t>(*bytes))});
  }
  return rows.empty() ? "" : "\nMemory\n" + aligned_table(rows);
}

std::string memory_of_ranks_part(const RunSummary& summary) {
  if (summary.memory_of_ranks.empty()) return "";
  TextTable rows{{"part", "measured", "predicted"}};
  for (const auto& part : parts_of_ranks(summary.memory_of_ranks)) rows.push_back(cells_of(part));
  return "\nMemory per rank\n" + aligned_table(rows);
}

std::string pipeline_part(const RunSummary& summary) {
  if (!summary.pipeline) return "";
  const PipelineRecord record = pipeline_record_of(*summary.pipeline);
  TextTable rows{{"schedule", printable(record.schedule)},
                 {"ranks", std::to_string(record.ranks)},
                 {"stages", std::to_string(record.stages)},
                 {"micro-batches", std::to_string(record.micro_batches)},
                 {"bubble", "planned " + fixed_number(record.planned_bubble, 3) + ", measured " +
                                fixed_number(record.bubble, 3)},
                 {"time", "planned " + short_number(record.planned_seconds) + " s, measured " +
                              short_number(record.seconds) + " s"}};
  if (summary.num_pipeline_actions != record.num_actions) {
    rows.push_back({"actions", std::to_string(summary.num_pipeline_actions) + " of " +
                                   std::to_string(record.num_actions) + " can be read"});
  }
  return "\nPipeline in step " + std::to_string(record.step) + "\n" + aligned_table(rows);
}

std::string total_bytes(const std::vector<RunFile>& files) {
  uint64_t bytes = 0;
  for (const auto& file : files) bytes += file.bytes;
  return bytes_text(bytes);
}

std::string files_part(const RunSummary& summary) {
  TextTable rows;
  const auto add = [&](const std::string& name, const std::vector<RunFile>& files, const std::string& one) {
    if (files.empty()) return;
    rows.push_back({name, total_bytes(files), counted(static_cast<double>(files.size()), one)});
  };
  add("checkpoints", summary.checkpoints, "file");
  for (const auto& file : summary.checkpoints)
    rows.push_back({"  " + printable(file.name), bytes_text(file.bytes)});
  add("tb", summary.event_files, "event file");
  if (summary.report_bytes) rows.push_back({"report.html", bytes_text(*summary.report_bytes)});
  return rows.empty() ? "" : "\nFiles\n" + aligned_table(rows);
}

std::string problems_part(const RunSummary& summary) {
  if (summary.damages.empty() && summary.missing.empty()) return "";
  std::string text = "\nProblems\n";
  for (const auto& damage : summary.damages) text += "  damaged: " + printable(damage) + "\n";
  for (const auto& name : summary.missing) text += "  missing: " + printable(name) + "\n";
  return text;
}

}  // namespace

std::string summary_text(const RunSummary& summary) {
  return headline(summary) + configuration_part(summary) + epochs_part(summary) + memory_part(summary) +
         memory_of_ranks_part(summary) + pipeline_part(summary) + files_part(summary) +
         problems_part(summary);
}

}  // namespace lockstep::apps
