#include "lockstep/apps/compare_strategies/trials/measured_run.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

namespace lockstep::apps {

using nlohmann::json;

namespace {

json rank_rows(const std::vector<RankMemory>& ranks) {
  json list = json::array();
  for (const auto& rank : ranks) {
    json object = json::object();
    for (const auto& [name, value] : metric_row(rank)) object[name] = std::get<int64_t>(value);
    list.push_back(std::move(object));
  }
  return list;
}

std::vector<RankMemory> ranks_of(const json& root) {
  std::vector<RankMemory> ranks;
  if (!root.contains("ranks")) return ranks;  // written before ranks were measured
  for (const auto& object : root.at("ranks")) {
    MetricRow row;
    for (const auto& [name, value] : object.items()) row.emplace_back(name, value.get<int64_t>());
    ranks.push_back(rank_memory_of(row));
  }
  return ranks;
}

}  // namespace

std::string measured_run_text(const MeasuredRun& run) {
  const json root{{"replicas", run.replicas},
                  {"description", run.description},
                  {"data", run.data},
                  {"parameters", run.parameters},
                  {"examples", run.examples},
                  {"seconds", run.seconds},
                  {"data_wait_seconds", run.data_wait_seconds},
                  {"communication_seconds", run.communication_seconds},
                  {"peak_memory_bytes", run.peak_memory_bytes},
                  {"losses", run.losses},
                  {"ranks", rank_rows(run.ranks)}};
  return root.dump(-1, ' ', true, json::error_handler_t::replace);
}

MeasuredRun parse_measured_run(const std::string& text, const std::string& source) {
  try {
    const json root = json::parse(text);
    MeasuredRun run{.replicas = root.at("replicas").get<int64_t>(),
                    .description = root.at("description").get<std::string>(),
                    .data = root.at("data").get<std::string>(),
                    .parameters = root.at("parameters").get<int64_t>(),
                    .examples = root.at("examples").get<int64_t>(),
                    .seconds = root.at("seconds").get<double>(),
                    .data_wait_seconds = root.at("data_wait_seconds").get<double>(),
                    .communication_seconds = root.at("communication_seconds").get<double>(),
                    .peak_memory_bytes = root.at("peak_memory_bytes").get<int64_t>(),
                    .losses = {},
                    .ranks = ranks_of(root)};
    // JSON has no NaN: such a loss is null.
    for (const auto& loss : root.at("losses"))
      run.losses.push_back(loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>());
    return run;
  } catch (const json::exception& error) {
    throw std::runtime_error(source + ": expected a measurement, but got: " + error.what());
  }
}

void write_measured_run(const std::string& path, const MeasuredRun& run) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << measured_run_text(run) << std::flush;
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

MeasuredRun read_measured_run(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return parse_measured_run({std::istreambuf_iterator<char>(file), {}}, path);
}

MeasuredRun merge_into_chief(const std::vector<MeasuredRun>& processes) {
  if (processes.empty())
    throw std::invalid_argument("[MeasuredRun] expected at least one process, but got none");
  MeasuredRun merged = processes.front();
  merged.peak_memory_bytes = 0;
  for (const auto& process : processes) merged.peak_memory_bytes += process.peak_memory_bytes;
  return merged;
}

MeasuredRun merge_workers(const std::vector<MeasuredRun>& workers) {
  MeasuredRun merged = merge_into_chief(workers);
  merged.data_wait_seconds = merged.communication_seconds = 0;
  merged.ranks.clear();
  const auto count = static_cast<double>(workers.size());
  for (const auto& worker : workers) {
    merged.data_wait_seconds += worker.data_wait_seconds / count;
    merged.communication_seconds += worker.communication_seconds / count;
    merged.ranks.insert(merged.ranks.end(), worker.ranks.begin(), worker.ranks.end());
  }
  return merged;
}

}  // namespace lockstep::apps
