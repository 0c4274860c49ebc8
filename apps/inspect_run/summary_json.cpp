#include <nlohmann/json.hpp>

#include "lockstep/apps/inspect_run/summary_text.h"

namespace lockstep::apps {
namespace {

using Json = nlohmann::ordered_json;

Json row_json(const MetricRow& row) {
  Json object = Json::object();
  for (const auto& [name, value] : row) {
    std::visit([&, &key = name](const auto& held) { object[key] = held; }, value);
  }
  return object;
}

Json files_json(const std::vector<RunFile>& files) {
  Json array = Json::array();
  for (const auto& [name, bytes] : files) array.push_back({{"name", name}, {"bytes", bytes}});
  return array;
}

template <typename T>
Json known(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json best_json(const RunSummary& summary) {
  const auto best = best_epoch(summary.epochs);
  if (!best) return {};
  const auto number = find_number(summary.epochs[best->index], "epoch");
  constexpr double kMostEpochs = 1e15;  // doubles hold every whole number up to here
  const bool is_number = number && *number >= 0 && *number <= kMostEpochs;
  const auto epoch = is_number ? static_cast<int64_t>(*number) : static_cast<int64_t>(best->index) + 1;
  return {{"epoch", epoch}, {"metric", best->metric}, {"value", best->value}};
}

}  // namespace

std::string summary_json(const RunSummary& summary) {
  Json root;
  root["format_version"] = 1;
  root["folder"] = summary.folder;
  root["status"] = run_status(summary);
  const MetricValue* reason = summary.end ? find_value(*summary.end, "reason") : nullptr;
  const auto* words = reason == nullptr ? nullptr : std::get_if<std::string>(reason);
  root["reason"] = words == nullptr ? Json() : Json(*words);
  root["owner"] = known(summary.owner);
  root["program"] = text_or_null(summary.program);
  root["version"] = text_or_null(summary.version);
  root["start"] = summary.start ? row_json(*summary.start) : Json();
  root["configuration"] = Json::array();
  for (const auto& [name, value, origin] : summary.configuration) {
    root["configuration"].push_back({{"name", name}, {"value", value}, {"origin", origin}});
  }
  root["planned_epochs"] = known(summary.planned_epochs);
  root["epochs"] = Json::array();
  for (const auto& row : summary.epochs) root["epochs"].push_back(row_json(row));
  root["best_epoch"] = best_json(summary);
  root["steps_logged"] = summary.num_steps_logged;
  root["totals"] = Json();
  if (summary.end) {
    root["totals"] = row_json(*summary.end);
    root["totals"].erase("status");
    root["totals"].erase("reason");
  }
  root["checkpoints"] = files_json(summary.checkpoints);
  root["event_files"] = files_json(summary.event_files);
  root["report_bytes"] = known(summary.report_bytes);
  root["missing"] = summary.missing;
  root["damages"] = summary.damages;
  // File names need not be UTF-8.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::apps
