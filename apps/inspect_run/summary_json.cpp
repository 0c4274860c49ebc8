#include <nlohmann/json.hpp>
#include <ostream>

#include "lockstep/apps/inspect_run/summary_text.h"

namespace lockstep::apps {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the name of a metric in JSON. The file of a language model's run counts tokens under the names of
/// images.
std::string json_name(const std::string& name, const RunSummary& summary) {
  if (summary.program != "train_gpt") return name;
  if (name == "images") return "tokens";
  return name == "images_per_second" ? "tokens_per_second" : name;
}

Json row_json(const MetricRow& row, const RunSummary& summary) {
  Json object = Json::object();
  for (const auto& [name, value] : row) {
    const std::string key = json_name(name, summary);
    std::visit([&](const auto& held) { object[key] = held; }, value);
  }
  return object;
}

/// Null if it was not measured.
Json memory_of_ranks_json(const RunSummary& summary) {
  if (summary.memory_of_ranks.empty()) return {};
  Json parts = Json::object();
  for (const auto& [name, least, most, predicted] : parts_of_ranks(summary.memory_of_ranks)) {
    parts[name] = {{"least", least}, {"most", most}, {"predicted", Json()}};
    if (predicted) parts[name]["predicted"] = *predicted;
  }
  return {{"ranks", summary.memory_of_ranks.size()}, {"parts", parts}};
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
  const auto best = summary.epochs.best();
  if (!best) return {};
  constexpr double kMostEpochs = 1e15;  // doubles hold every whole number up to here
  const bool is_number = best->number && *best->number >= 0 && *best->number <= kMostEpochs;
  const auto epoch = is_number ? static_cast<int64_t>(*best->number) : static_cast<int64_t>(best->index) + 1;
  return {{"epoch", epoch}, {"metric", best->metric}, {"value", best->value}};
}

/// In ASCII, as a terminal may obey characters beyond it. File names need not be UTF-8.
std::string text_of_json(const Json& value) {
  return value.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

/// Returns the members of an object, as text_of_json() writes them, without its braces.
std::string members_of(const Json& object) {
  const std::string text = text_of_json(object);
  return text.substr(2, text.size() - 4);  // "{\n" and "\n}"
}

/// Indents all lines but the first.
std::string indented(const std::string& text, const std::string& by) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += by;
  }
  return result;
}

/// The members before and after the epochs.
Json members_before(const RunSummary& summary) {
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
  root["start"] = summary.start ? row_json(*summary.start, summary) : Json();
  root["configuration"] = Json::array();
  for (const auto& [name, value, origin] : summary.configuration) {
    root["configuration"].push_back({{"name", name}, {"value", value}, {"origin", origin}});
  }
  root["examples"] = examples_of(summary);
  root["planned_epochs"] = known(summary.planned_epochs);
  return root;
}

Json members_after(const RunSummary& summary) {
  Json root;
  root["best_epoch"] = best_json(summary);
  root["steps_logged"] = summary.num_steps_logged;
  root["memory"] = summary.memory ? row_json(*summary.memory, summary) : Json();
  root["memory_of_ranks"] = memory_of_ranks_json(summary);
  root["pipeline"] = summary.pipeline ? row_json(*summary.pipeline, summary) : Json();
  root["totals"] = Json();
  if (summary.end) {
    root["totals"] = row_json(*summary.end, summary);
    root["totals"].erase("status");
    root["totals"].erase("reason");
  }
  root["checkpoints"] = files_json(summary.checkpoints);
  root["event_files"] = files_json(summary.event_files);
  root["report_bytes"] = known(summary.report_bytes);
  root["missing"] = summary.missing;
  root["damages"] = summary.damages;
  return root;
}

}  // namespace

void write_summary_json(std::ostream& out, const RunSummary& summary, const EpochSource& epochs) {
  out << "{\n" << members_of(members_before(summary)) << ",\n  \"epochs\": [";
  bool is_first = true;
  epochs([&](const MetricRow& row) {
    out << (is_first ? "\n    " : ",\n    ") << indented(text_of_json(row_json(row, summary)), "    ");
    is_first = false;
  });
  out << (is_first ? "],\n" : "\n  ],\n") << members_of(members_after(summary)) << "\n}\n";
}

}  // namespace lockstep::apps
