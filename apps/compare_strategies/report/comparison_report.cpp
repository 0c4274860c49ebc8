#include "lockstep/apps/compare_strategies/report/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <variant>

#include "lockstep/measurement/markdown_table.h"

namespace lockstep::apps {
namespace {

using nlohmann::ordered_json;

constexpr double kMebibyte = 1 << 20;

std::string spread_text(const Spread& spread, int digits) {
  std::string text = fmt::format("{:.{}f}", spread.median, digits);
  if (spread.interval) {
    text +=
        fmt::format(" ({:.{}f} to {:.{}f})", spread.interval->lower, digits, spread.interval->upper, digits);
  }
  return text;
}

std::string share_text(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

ordered_json spread_json(const Spread& spread) {
  ordered_json json{{"median", spread.median}, {"interval_95", nullptr}, {"rounds", spread.rounds}};
  if (spread.interval) json["interval_95"] = {spread.interval->lower, spread.interval->upper};
  return json;
}

/// Returns what is measured of a rank's model, and what is predicted.
std::string rank_text(const std::vector<RankMemory>& ranks) {
  if (ranks.empty()) return "";
  const auto cells = cells_of(parts_of_ranks(ranks).back());
  return cells[2].empty() ? cells[1] : cells[1] + " / " + cells[2];
}

ordered_json ranks_json(const std::vector<RankMemory>& ranks) {
  if (ranks.empty()) return {};
  ordered_json json;
  for (const auto& [name, least, most, predicted] : parts_of_ranks(ranks)) {
    json[name] = {{"least", least}, {"most", most}, {"predicted", nullptr}};
    if (predicted) json[name]["predicted"] = *predicted;
  }
  return json;
}

ordered_json row_json(const ComparisonRow& row) {
  ordered_json json{{"label", row.strategy.label},
                    {"name", row.strategy.name},
                    {"replicas_asked_for", nullptr},
                    {"processes", num_processes(row.strategy)},
                    {"exit_code", row.failure ? row.failure->exit_code : 0},
                    {"error", nullptr}};
  if (row.strategy.replicas > 0) json["replicas_asked_for"] = row.strategy.replicas;
  if (!row.strategy.mesh.empty()) json["mesh"] = row.strategy.mesh;
  if (row.strategy.sharding > 0) json["sharding"] = row.strategy.sharding;
  if (!row.strategy.devices.empty()) json["devices"] = row.strategy.devices;
  if (!row.strategy.replica_weights.empty()) json["replica_weights"] = row.strategy.replica_weights;
  if (has_servers(row.strategy)) {
    json["servers"] = row.strategy.servers;
    json["max_staleness"] = nullptr;
    if (row.strategy.max_staleness) json["max_staleness"] = *row.strategy.max_staleness;
  }
  if (row.failure) {
    json["error"] = row.failure->message;
    return json;
  }
  json["replicas"] = row.replicas;
  json["description"] = row.description;
  json["examples_per_second"] = spread_json(row.examples_per_second);
  if (row.ratio) json["ratio"] = spread_json(*row.ratio);
  json["loss"] = row.loss;
  json["losses"] = row.losses;
  json["parameter_difference"] = row.parameter_difference;
  json["peak_memory_bytes"] = row.peak_memory_bytes;
  json["memory_of_ranks"] = ranks_json(row.ranks);
  json["data_wait_share"] = row.data_wait_share;
  json["communication_share"] = row.communication_share;
  return json;
}

ordered_json kind_json(const TrainOptions& work) {
  ordered_json json{{"model", model_name(work.model)},
                    {"image_size", work.image_size},
                    {"precision", precision_name(work.precision)},
                    {"optimizer", optimizer_name(work.optimizer)},
                    {"momentum", nullptr}};
  if (work.optimizer == OptimizerKind::kSgd) json["momentum"] = work.momentum;
  return json;
}

ordered_json kind_json(const CtrOptions& work) {
  return {{"model", ctr_model_name(work.model)},
          {"table_rows", work.table_rows},
          {"embedding_dim", work.embedding_dim},
          {"precision", ctr_precision_name(work.precision)},
          {"optimizer", ctr_optimizer_name(work.optimizer)}};
}

ordered_json kind_json(const GptTrainOptions& work) {
  const auto if_given = [](const auto& value) { return value == 0 ? ordered_json() : ordered_json(value); };
  ordered_json json{{"model", work.model},
                    {"family", nullptr},
                    {"layers", if_given(work.layers)},
                    {"hidden", if_given(work.hidden)},
                    {"heads", if_given(work.heads)},
                    {"kv_heads", if_given(work.kv_heads)},
                    {"mlp_hidden", if_given(work.mlp_hidden)},
                    {"sequence_length", work.sequence_length},
                    {"micro_batch_size", if_given(work.micro_batch_size)},
                    {"recompute", gpt_recompute_name(work.recompute)},
                    {"precision", precision_name(work.precision)},
                    {"optimizer", "adamw"},
                    {"weight_decay", work.weight_decay},
                    {"beta2", work.beta2},
                    {"clip_norm", work.clip_norm}};
  if (work.family) json["family"] = gpt_family_name(*work.family);
  return json;
}

ordered_json work_json(const ComparisonReport& report) {
  const ComparedWork& compared = report.options.work;
  ordered_json json = std::visit([](const auto& work) { return kind_json(work); }, compared);
  std::visit(
      [&](const auto& work) {
        json["global_batch_size"] = work.global_batch_size;
        json["learning_rate"] = work.learning_rate;
        json["seed"] = work.seed;
      },
      compared);
  json["parameters"] = report.parameters;
  json["examples"] = examples_of(compared);
  json["data"] = report.data;
  json["steps"] = report.options.steps;
  json["warmup_steps"] = report.options.warmup_steps;
  json["rounds"] = report.options.rounds;
  return json;
}

}  // namespace

ComparisonTable comparison_table(const ComparisonReport& report) {
  const bool has_failures =
      std::any_of(report.rows.begin(), report.rows.end(), [](const auto& row) { return row.failure; });
  const std::string reference =
      report.reference < 0 ? "" : " to " + report.rows[static_cast<size_t>(report.reference)].strategy.label;
  ComparisonTable table{
      .header = {
          "strategy", "replicas", examples_of(report.options.work) + "/s", "ratio" + reference,
          fmt::format("loss after {} {}", report.options.steps, report.options.steps == 1 ? "step" : "steps"),
          "parameter difference", "peak memory", "memory per rank / formula", "data wait", "communication"}};
  if (has_failures) table.header.emplace_back("error");
  for (const auto& row : report.rows) {
    std::vector<std::string> cells{row.strategy.label};
    if (row.failure) {
      cells.resize(table.header.size() - 1);
      cells.push_back(fmt::format("exit code {}: {}", row.failure->exit_code, row.failure->message));
    } else {
      cells.insert(
          cells.end(),
          {fmt::format("{}", row.replicas), spread_text(row.examples_per_second, 0),
           row.ratio ? spread_text(*row.ratio, 2) : "", fmt::format("{:.4f}", row.loss),
           row.parameter_difference == 0 ? "0" : fmt::format("{:.1e}", row.parameter_difference),
           fmt::format("{:.0f} MiB", static_cast<double>(row.peak_memory_bytes) / kMebibyte),
           rank_text(row.ranks), share_text(row.data_wait_share), share_text(row.communication_share)});
      cells.resize(table.header.size());
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string work_text(const ComparisonReport& report) {
  const std::string text = fmt::format(
      "{}; {} {} of {} steps, {} to warm up", work_summary(report.options.work), report.options.rounds,
      report.options.rounds == 1 ? "round" : "rounds", report.options.steps, report.options.warmup_steps);
  return report.data.empty() ? text : report.data + "; " + text;
}

std::vector<std::string> weight_notes(const ComparisonReport& report) {
  std::vector<std::string> notes;
  for (const auto& row : report.rows) {
    if (row.failure || row.strategy.replica_weights.empty()) continue;
    notes.push_back(row.strategy.label + " in the first round: " + row.description);
  }
  return notes;
}

std::string comparison_text(const ComparisonReport& report) {
  const ComparisonTable table = comparison_table(report);
  measurement::MarkdownTable markdown(table.header);
  for (const auto& row : table.rows) markdown.add_row(row);
  std::ostringstream text;
  text << markdown << '\n';
  for (const auto& note : weight_notes(report)) text << note << '\n';
  text << advice(report.rows, examples_of(report.options.work)) << '\n';
  return text.str();
}

std::string comparison_json(const ComparisonReport& report) {
  ordered_json root{
      {"format_version", 2},       {"program", "compare_strategies"},
      {"version", report.version}, {"date", report.date},
      {"machine", report.machine}, {"work", work_json(report)},
      {"reference", nullptr},      {"strategies", ordered_json::array()},
      {"advised", nullptr},        {"advice", advice(report.rows, examples_of(report.options.work))}};
  if (report.reference >= 0)
    root["reference"] = report.rows[static_cast<size_t>(report.reference)].strategy.label;
  for (const auto& row : report.rows) root["strategies"].push_back(row_json(row));
  if (const int advised = advised_strategy(report.rows); advised >= 0)
    root["advised"] = report.rows[static_cast<size_t>(advised)].strategy.label;
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::apps
