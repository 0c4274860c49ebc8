#include "lockstep/apps/inspect_run/run_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

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

/// Writes rows with JsonLinesLog and reads them again.
std::vector<MetricRow> written_and_read(const std::vector<MetricRow>& rows) {
  static const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  std::filesystem::remove(path);
  JsonLinesLog log(path);
  for (const auto& row : rows) log.write(with_kind("epoch", row));
  RunSummary summary;
  apps::read_run_metrics(path, summary);
  expect(summary.damages.empty(), "no damage in what was written");
  return summary.epochs;
}

}  // namespace

/// Nothing is thrown, whatever the files contain.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(std::span(data, size));
  RunSummary summary{.folder = "run", .program = "", .version = ""};
  apps::read_run_configuration(file.path(), summary);
  apps::read_run_metrics(file.path(), summary);
  expect_plain_text(summary_text(summary, 5));
  const auto json = nlohmann::json::parse(summary_json(summary));
  expect(json.at("epochs").size() == summary.epochs.size(), "all epochs");
  if (!summary.epochs.empty())
    expect(written_and_read(summary.epochs) == summary.epochs, "the rows that were written");
  return 0;
}

}  // namespace lockstep::fuzz
