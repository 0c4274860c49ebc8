#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/report/comparison.h"

namespace lockstep::apps {

/// All contents of a comparison's report.
struct ComparisonReport {
  CompareOptions options;
  std::vector<ComparisonRow> rows;
  int reference = -1;  ///< index of the row that the others are compared with; -1: none
  std::string data;    ///< description of the training data
  int64_t parameters = 0;
  std::string machine;  ///< processor and number of cores
  std::string date;     ///< date of the end, such as 2026-01-31
  std::string version;  ///< version of Lockstep
};

/// Column headers and the cells of each strategy. If any strategy failed, the last column describes the
/// failures.
struct ComparisonTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

ComparisonTable comparison_table(const ComparisonReport& report);

/// Returns a line for each strategy whose batches are cut by weights, with its own description: its devices,
/// and the last weights.
std::vector<std::string> weight_notes(const ComparisonReport& report);

/// Returns the table in Markdown, followed by weight_notes() and the advice.
std::string comparison_text(const ComparisonReport& report);

/// Returns the report as JSON; docs/comparing.md lists the keys.
std::string comparison_json(const ComparisonReport& report);

/// Returns one line that describes the training that all strategies ran.
std::string work_text(const ComparisonReport& report);

}  // namespace lockstep::apps
