#include "lockstep/apps/inspect_run/run_files.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace lockstep::apps {
namespace {

using Json = nlohmann::ordered_json;

// The same limit as --config's.
constexpr uint64_t kLongestConfiguration = uint64_t{1} << 20;
constexpr int kDeepest = 8;
constexpr size_t kLongestLine = size_t{1} << 20;
constexpr size_t kMostRanks = 4096;

/// Returns the parser's message without its prefix.
std::string parse_message(const Json::exception& error) {
  const std::string message = error.what();
  const size_t start = message.find("] ");
  return start == std::string::npos ? message : message.substr(start + 2);
}

/// Reads JSON whose arrays and objects are nested at most kDeepest levels. Returns the problem found, or an
/// empty string.
template <typename Input>
std::string parse_bounded(Input&& input, Json& value) {
  bool is_too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t event, const Json&) {
    is_too_deep = is_too_deep || (depth >= kDeepest && (event == Json::parse_event_t::object_start ||
                                                        event == Json::parse_event_t::array_start));
    return !is_too_deep;  // deeper values are dropped
  };
  try {
    value = Json::parse(std::forward<Input>(input), look);
  } catch (const Json::exception& error) {  // not only parse_error: numbers may exceed a double
    return parse_message(error);
  }
  if (!is_too_deep) return "";
  return "expected at most " + std::to_string(kDeepest) +
         " arrays and objects inside each other, but got more";
}

/// Returns a value as its flag would be typed.
std::string value_text(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& element : value) text += (text.empty() ? "" : ",") + value_text(element);
  return text;
}

std::string text_of(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Reads {"value": 5, "origin": "file", "name": "a.json"}, or the value alone.
ConfigurationEntry configuration_entry(const std::string& name, const Json& entry) {
  if (!entry.is_object() || !entry.contains("value")) {
    return {.name = name, .value = value_text(entry), .origin = "unknown"};
  }
  const std::string origin = text_of(entry, "origin");
  const std::string from = text_of(entry, "name");
  return {.name = name,
          .value = value_text(entry["value"]),
          .origin = (origin.empty() ? "unknown" : origin) + (from.empty() ? "" : " " + from)};
}

std::optional<int64_t> integer_of(const Json& values, const std::string& name) {
  const auto entry = values.find(name);
  if (entry == values.end()) return std::nullopt;
  const Json& value = entry->is_object() && entry->contains("value") ? (*entry)["value"] : *entry;
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

/// Returns the number of epochs in a run's values. A program without epochs counts the steps up to each test
/// as one.
std::optional<int64_t> planned_epochs_of(const Json& values) {
  if (const auto epochs = integer_of(values, "epochs")) return epochs;
  const auto steps = integer_of(values, "steps"), test_every = integer_of(values, "test-every");
  if (!steps || !test_every || *steps < 1 || *test_every < 0) return std::nullopt;
  return *test_every == 0 ? 1 : (*steps - 1) / *test_every + 1;
}

std::optional<MetricValue> metric_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return value.get<double>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return std::nullopt;
}

/// A line of metrics.jsonl.
struct MetricsLine {
  std::string kind;
  MetricRow row;
};

/// Returns the problem found, or an empty string.
std::string parse_line(const LineReader& lines, MetricsLine& parsed) {
  if (lines.is_cut()) return "expected a line of at most 1 MiB";
  Json object;
  if (std::string wrong = parse_bounded(lines.line(), object); !wrong.empty()) return wrong;
  if (!object.is_object()) return "expected an object, but got " + std::string(object.type_name());
  parsed.row.clear();
  for (const auto& [name, value] : object.items()) {
    const auto metric = metric_value(value);
    if (!metric) return name + ": expected a number or a text, but got " + value.type_name();
    if (name != "kind") parsed.row.emplace_back(name, *metric);
  }
  parsed.kind = text_of(object, "kind");
  return "";
}

/// Adds a line according to its kind. Other kinds are ignored.
void add_line(MetricsLine line, RunSummary& summary) {
  if (line.kind == "start") {
    summary.start = std::move(line.row);
  } else if (line.kind == "step") {
    ++summary.num_steps_logged;
  } else if (line.kind == "epoch") {
    summary.epochs.add(std::move(line.row));
  } else if (line.kind == "memory") {
    summary.memory = std::move(line.row);
  } else if (line.kind == "memory_of_rank") {
    if (summary.memory_of_ranks.size() < kMostRanks)
      summary.memory_of_ranks.push_back(rank_memory_of(line.row));
  } else if (line.kind == "pipeline") {
    summary.pipeline = std::move(line.row);
  } else if (line.kind == "pipeline_action") {
    if (pipeline_action_of(line.row)) ++summary.num_pipeline_actions;
  } else if (line.kind == "end") {
    summary.end = std::move(line.row);
  }
}

}  // namespace

void read_run_configuration(const RegularFile& file, RunSummary& summary) {
  const uint64_t size = file.size();
  if (size > kLongestConfiguration) {
    summary.damages.push_back("config.json: expected at most " + std::to_string(kLongestConfiguration) +
                              " bytes, but got " + std::to_string(size));
    return;
  }
  Json root;
  if (const std::string wrong = parse_bounded(file.read_start(kLongestConfiguration), root); !wrong.empty()) {
    summary.damages.push_back("config.json: " + wrong);
    return;
  }
  const auto values = root.find("values");
  if (!root.is_object() || values == root.end() || !values->is_object()) {
    summary.damages.push_back("config.json: expected an object with the object \"values\"");
    return;
  }
  summary.program = text_of(root, "program");
  summary.version = text_of(root, "version");
  for (const auto& [name, entry] : values->items())
    summary.configuration.push_back(configuration_entry(name, entry));
  summary.planned_epochs = planned_epochs_of(*values);
}

void read_run_metrics(const RegularFile& file, RunSummary& summary) {
  constexpr size_t kMostDamages = 3;
  size_t num_damages = 0;
  LineReader lines(file, kLongestLine);
  MetricsLine line;
  for (int64_t number = 1; lines.next(); ++number) {
    if (!lines.is_whole()) break;
    const std::string wrong = parse_line(lines, line);
    if (wrong.empty()) {
      add_line(std::move(line), summary);
    } else if (++num_damages <= kMostDamages) {
      summary.damages.push_back("metrics.jsonl, line " + std::to_string(number) + ": " + wrong);
    }
  }
  if (num_damages > kMostDamages) {
    summary.damages.push_back("metrics.jsonl: " + std::to_string(num_damages - kMostDamages) +
                              " more such lines");
  }
}

void read_epochs(const RegularFile& file, size_t count, const std::function<void(MetricRow)>& act) {
  LineReader lines(file, kLongestLine);
  MetricsLine line;
  for (size_t done = 0; done < count && lines.next();) {
    if (!parse_line(lines, line).empty() || line.kind != "epoch") continue;
    act(std::move(line.row));
    ++done;
  }
}

}  // namespace lockstep::apps
