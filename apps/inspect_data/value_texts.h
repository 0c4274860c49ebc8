#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/inspect_data/column_summary.h"

namespace lockstep::apps {

/// Returns the number of different values, such as "50" or "about 25 300".
std::string distinct_text(const ColumnSummary& column);
/// Returns the least and the most of a column's numbers, or of its lengths.
std::string least_text(const ColumnSummary& column);
std::string most_text(const ColumnSummary& column);
std::string mean_text(const ColumnSummary& column);
/// Returns the type with its unit.
std::string type_text(const ColumnSummary& column);
/// Returns pairs of name and value: rows, columns, files, bytes.
std::vector<std::pair<std::string, std::string>> data_facts(const DataSummary& summary);
/// Returns how the data were sampled in one line; empty if all were read.
std::string sampling_text(const DataSummary& summary);

/// Returns the compression of all columns, or an empty text if they differ.
std::string compression_of_all(const DataSummary& summary);
/// Returns how many numbers are NaN or infinite; empty if none are.
std::string odd_numbers_text(const NumberSummary& numbers);

/// Returns whether the bins of magnitudes tell more numbers apart than those of equal width.
bool is_skewed(const NumberSummary& numbers);

}  // namespace lockstep::apps
