#pragma once

#include <string>

#include "lockstep/apps/inspect_data/column_summary.h"

namespace lockstep::apps {

/// Returns the summary as plain text for a terminal, ending with a newline. It contains no control
/// characters, whatever the data hold.
std::string data_text(const DataSummary& summary);

/// Returns the summary as JSON in ASCII, ending with a newline: {"format_version": 1, "place", "kind",
/// "files", "stored_bytes", "rows", "rows_read", "sampling", "row_groups": {"count", "least_rows",
/// "most_rows"}, "malformed_rows", "problems", "columns": [{"name", "type", "unit", "compression",
/// "stored_bytes", "uncompressed_bytes", "decoded_bytes", "rows", "nulls", "null_elements", "distinct",
/// "distinct_is_exact", "numbers", "lengths", "values": [{"value", "count"}], "images": {"formats", "sizes",
/// "widths", "heights"}}]}. Numbers and lengths are {"count", "nan", "infinite", "least", "mean", "most",
/// "histogram": {"low", "width", "counts"}}; what is unknown is null.
std::string data_json(const DataSummary& summary);

/// Returns the summary as a self-contained HTML page, see HtmlPage.
std::string data_html(const DataSummary& summary);

}  // namespace lockstep::apps
