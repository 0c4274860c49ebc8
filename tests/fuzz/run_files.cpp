#include "lockstep/apps/inspect_run/run_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "lockstep/apps/inspect_run/summary_text.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep::fuzz {
namespace {

using apps::RunSummary;

void expect_plain_text(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    expect((byte >= 0x20 && byte != 0x7F) || byte == '\n', "text without control characters");
    const bool is_late_control =
        byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    expect(!is_late_control, "text without control characters beyond ASCII");
  }
  nlohmann::json(text).dump();  // throws if it is not UTF-8
}

std::vector<MetricRow> epochs_in(const RegularFile& file, size_t count) {
  std::vector<MetricRow> rows;
  apps::read_epochs(file, count, [&](MetricRow row) { rows.push_back(std::move(row)); });
  return rows;
}

/// Writes rows with JsonLinesLog and reads them again.
std::vector<MetricRow> written_and_read(const std::vector<MetricRow>& rows) {
  static const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  std::filesystem::remove(path);
  JsonLinesLog log(path);
  for (const auto& row : rows) log.write(with_kind("epoch", row));
  RunSummary summary;
  apps::read_run_metrics(RegularFile(path), summary);
  expect(summary.damages.empty(), "no damage in what was written");
  return epochs_in(RegularFile(path), rows.size());
}

}  // namespace

/// Nothing is thrown, whatever the files contain.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory(std::span(data, size));
  const RegularFile file(memory.path());
  RunSummary summary{.folder = "run", .program = "", .version = ""};
  apps::read_run_configuration(file, summary);
  apps::read_run_metrics(file, summary);
  expect_plain_text(summary_text(summary));
  const auto rows = epochs_in(file, summary.epochs.count());
  std::ostringstream json;
  write_summary_json(json, summary, [&](const auto& act) {
    for (const auto& row : rows) act(row);
  });
  expect(nlohmann::json::parse(json.str()).at("epochs").size() == summary.epochs.count(), "all epochs");
  if (!rows.empty()) expect(written_and_read(rows) == rows, "the rows that were written");
  return 0;
}

}  // namespace lockstep::fuzz
