#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/report/comparison.h"

namespace lockstep::apps {

/// All that a report of a comparison tells.
struct ComparisonReport {
  CompareOptions options;
  std::vector<ComparisonRow> rows;
  int reference = -1;  ///< the row that the others are compared with; -1: none
  std::string data;    ///< what was trained on
  int64_t parameters = 0;
  std::string machine;  ///< its processor and cores
  std::string date;     ///< of the end, as 2026-01-31
  std::string version;  ///< of Lockstep
};

/// The heads of the columns, and each strategy's cells; failures have a last column of their own where there
/// are any.
struct ComparisonTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

ComparisonTable comparison_table(const ComparisonReport& report);

/// The table in Markdown, and the advice below it.
std::string comparison_text(const ComparisonReport& report);

/// docs/comparing.md names the keys.
std::string comparison_json(const ComparisonReport& report);

/// The work that all did, in a line.
std::string work_text(const ComparisonReport& report);

}  // namespace lockstep::apps
